// Eight elements a thread. See activation_cuda.h.
#include "base/check.h"
#include "kernels/activation/activation_cuda.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"

namespace baton {
namespace {

constexpr unsigned kThreads = 256;

template <Activation kKind>
__device__ float activate(float x) {
  if constexpr (kKind == Activation::kSilu) return x / (1.0f + __expf(-x));
  // tanh(u) = 1 - 2 / (exp(2 u) + 1): right at both ends, where exp is 0 or infinite.
  const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (2.0f - 2.0f / (__expf(2.0f * u) + 1.0f));
}

// Grid: [ceil(cols / 8 / kThreads), rows].
template <Activation kKind>
__global__ void __launch_bounds__(kThreads)
    activation_kernel(const ActivationArgs<Bf16, F16> args) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int col = (blockIdx.x * kThreads + threadIdx.x) * kVecElems;
  if (col >= args.cols) return;
  for (int64_t row = blockIdx.y; row < args.rows; row += gridDim.y) {
    const F16* gate = args.gate_up + row * 2 * args.cols + col;
    Vec8 g = load8(gate);
    const Vec8 up = load8(gate + args.cols);
#pragma unroll
    for (int j = 0; j < kVecElems; ++j) g.v[j] = activate<kKind>(g.v[j]) * up.v[j];
    store8(args.y + row * args.cols + col, g);
  }
}

}  // namespace

void activation_cuda(const ActivationArgs<Bf16, F16>& args, cudaStream_t stream) {
  CHECK_EQ(args.cols % kVecElems, 0) << "activation";
  constexpr int64_t kGridRowsMax = 65535;
  const auto blocks = static_cast<unsigned>(args.cols / kVecElems + kThreads - 1) / kThreads;
  const auto rows = static_cast<unsigned>(args.rows < kGridRowsMax ? args.rows : kGridRowsMax);
  launch("activation", {.grid = dim3(blocks, rows), .block = dim3(kThreads)}, stream,
         args.kind == Activation::kSilu ? activation_kernel<Activation::kSilu>
                                        : activation_kernel<Activation::kGeluTanh>,
         args);
}

}  // namespace baton
