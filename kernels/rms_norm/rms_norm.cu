// One block a row, which it reads once and keeps in registers. See rms_norm_cuda.h.
#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace baton {
namespace {

// The sum over a block, the same in every thread.
__device__ float sum_block(float x) {
  __shared__ float warp_sums[32];
  const int lane = threadIdx.x % 32;
  x = sum_lanes(x, 32);
  if (lane == 0) warp_sums[threadIdx.x / 32] = x;
  __syncthreads();
  return sum_lanes(lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f, 32);
}

// A thread takes every blockDim.x-th vector of 8, kVecs of them at most.
template <int kVecs>
__global__ void __launch_bounds__(1024) rms_norm_kernel(const RmsNormArgs<float, F16> args) {
  let_next_kernel_start();
  const int num_vecs = args.cols / kVecElems;
  // The weights do not depend on earlier kernels.
  Vec8 weight[kVecs];
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int vec = threadIdx.x + i * blockDim.x;
    if (vec < num_vecs) weight[i] = load8(args.weight + vec * kVecElems);
  }
  wait_for_previous_kernels();

  const float* x = args.x + blockIdx.x * args.x_stride;
  Vec8 row[kVecs];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int vec = threadIdx.x + i * blockDim.x;
    if (vec >= num_vecs) break;
    row[i] = load8(x + vec * kVecElems);
#pragma unroll
    for (float value : row[i].v) squares += value * value;
  }
  const float scale = rsqrtf(sum_block(squares) / static_cast<float>(args.cols) + args.eps);

  F16* y = args.y + blockIdx.x * args.y_stride;
#pragma unroll
  for (int i = 0; i < kVecs; ++i) {
    const int vec = threadIdx.x + i * blockDim.x;
    if (vec >= num_vecs) break;
#pragma unroll
    for (int j = 0; j < kVecElems; ++j) row[i].v[j] *= scale * weight[i].v[j];
    if (args.short_y) row[i] = expand(to_bf16(row[i]));
    store8(y + vec * kVecElems, row[i]);
  }
}

template <int kVecs>
void launch_rms_norm(const RmsNormArgs<float, F16>& args, cudaStream_t stream) {
  const int32_t vecs_a_thread = (args.cols / kVecElems + kVecs - 1) / kVecs;
  const auto threads = static_cast<unsigned>((vecs_a_thread + 31) / 32 * 32);
  launch("rms_norm", {.grid = dim3(static_cast<unsigned>(args.rows)), .block = dim3(threads)},
         stream, rms_norm_kernel<kVecs>, args);
}

}  // namespace

void rms_norm_cuda(const RmsNormArgs<float, F16>& args, cudaStream_t stream) {
  CHECK_EQ(args.cols % kVecElems, 0) << "rms_norm";
  CHECK_EQ(args.x_stride % kVecElems, 0) << "rms_norm";
  CHECK_EQ(args.y_stride % kVecElems, 0) << "rms_norm";
  CHECK_LE(args.cols, kRmsNormColsMax) << "rms_norm";
  if (args.cols <= 8 * 1024) return launch_rms_norm<1>(args, stream);
  if (args.cols <= 16 * 1024) return launch_rms_norm<2>(args, stream);
  launch_rms_norm<4>(args, stream);
}

}  // namespace baton
