// A warp takes one head of one token, element by element. See rope_kv_any_cuda.h.
#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/rope_kv/rope_kv_any_cuda.h"

namespace baton {
namespace {

constexpr int kWarps = 8;
constexpr int kHeadDimMax = 256;

__device__ float rotated(const RopeKvArgs<Bf16, F16>& args, const float* x, int i,
                         int32_t position) {
  const int half = args.rotary_dim / 2;
  if (i >= args.rotary_dim) return x[i];
  const int pair = args.interleaved ? i / 2 : i % half;
  const int other = args.interleaved ? (i ^ 1) : (i < half ? i + half : i - half);
  const bool first = args.interleaved ? i % 2 == 0 : i < half;
  const float* cos_sin = args.cos_sin + int64_t{position} * args.rotary_dim;
  const float cos = cos_sin[pair], sin = cos_sin[half + pair];
  return first ? x[i] * cos - x[other] * sin : x[i] * cos + x[other] * sin;
}

__global__ void __launch_bounds__(kWarps * 32)
    rope_kv_any_kernel(const RopeKvArgs<Bf16, F16> args) {
  __shared__ float heads_of_block[kWarps][kHeadDimMax];
  let_next_kernel_start();
  wait_for_previous_kernels();
  const PagedLayer& kv = args.kv;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int heads = args.num_heads + 2 * kv.num_kv_heads;
  const int64_t work = int64_t{blockIdx.x} * kWarps + warp;
  if (work >= int64_t{args.num_tokens} * heads) return;
  const auto token = static_cast<int32_t>(work / heads);
  const int head = static_cast<int>(work % heads);
  const bool is_q = head < args.num_heads;
  const bool is_v = head >= args.num_heads + kv.num_kv_heads;

  const F16* row = args.qkv + work * kv.head_dim;
  float* x = heads_of_block[warp];
  float squares = 0;
  for (int i = lane; i < kv.head_dim; i += 32) {
    x[i] = half_values(row[i].bits).x;
    squares += x[i] * x[i];
  }
  squares = sum_lanes(squares, 32);
  const float* weight = is_q ? args.q_norm : args.k_norm;
  if (!is_v && weight != nullptr) {
    const float scale = rsqrtf(squares / static_cast<float>(kv.head_dim) + args.norm_eps);
    for (int i = lane; i < kv.head_dim; i += 32) x[i] *= scale * weight[i];
  }
  __syncwarp();

  Bf16* q = args.q + token * args.q_stride + head * kv.head_dim;
  const int32_t slot = args.slot_mapping[token];
  if (!is_q && slot < 0) return;
  std::byte* page = kv.base + (is_q ? 0 : slot / kv.page_tokens) * kv.page_bytes + kv.layer_offset;
  const int64_t first =
      (int64_t{head - args.num_heads} * kv.page_tokens + slot % kv.page_tokens) * kv.head_dim;
  for (int i = lane; i < kv.head_dim; i += 32) {
    const float value = is_v ? x[i] : rotated(args, x, i, args.positions[token]);
    if (is_q) {
      q[i] = {bf16_bits(value)};
    } else {
      reinterpret_cast<uint16_t*>(page)[first + i] =
          kv.dtype == Dtype::kF16 ? half_bits(value) : bf16_bits(value);
    }
  }
}

}  // namespace

void rope_kv_any_cuda(const RopeKvArgs<Bf16, F16>& args, cudaStream_t stream) {
  CHECK_LE(args.kv.head_dim, kHeadDimMax) << "rope_kv";
  CHECK_EQ(args.rotary_dim % 2, 0) << "rope_kv";
  const int64_t heads = int64_t{args.num_tokens} * (args.num_heads + 2 * args.kv.num_kv_heads);
  launch("rope_kv",
         {.grid = dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps)),
          .block = dim3(kWarps * 32)},
         stream, rope_kv_any_kernel, args);
}

}  // namespace baton
