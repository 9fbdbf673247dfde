// A head of a token is the work of head_dim / 16 lanes: each holds the two vectors of 8 elements
// that rotate with each other. See rope_kv_cuda.h.
#include <bit>

#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/rope_kv/rope_kv_any_cuda.h"
#include "kernels/rope_kv/rope_kv_cuda.h"

namespace baton {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kPairElems = 2 * kVecElems;

struct Pair {
  int first, second;  // elements of the head where the lane's two vectors start
  Vec8 a, b;
};

// Vectors rotary_dim / 2 apart; those beyond rotary_dim, which do not rotate, side by side.
__device__ void place_half(int lane, int rotary_dim, Pair& pair) {
  const int rotating = rotary_dim / kPairElems;
  if (lane < rotating) {
    pair.first = lane * kVecElems;
    pair.second = pair.first + rotary_dim / 2;
  } else {
    pair.first = rotary_dim + (lane - rotating) * kPairElems;
    pair.second = pair.first + kVecElems;
  }
}

__device__ void rotate_half(const float* cos_sin, int rotary_dim, Pair& pair) {
  if (pair.first >= rotary_dim) return;
  const Vec8 cos = load8(cos_sin + pair.first);
  const Vec8 sin = load8(cos_sin + rotary_dim / 2 + pair.first);
#pragma unroll
  for (int i = 0; i < kVecElems; ++i) {
    const float a = pair.a.v[i], b = pair.b.v[i];
    pair.a.v[i] = a * cos.v[i] - b * sin.v[i];
    pair.b.v[i] = b * cos.v[i] + a * sin.v[i];
  }
}

__device__ void rotate_interleaved(const float* cos_sin, int rotary_dim, int first, Vec8& x) {
  if (first >= rotary_dim) return;
  const float4 cos = *reinterpret_cast<const float4*>(cos_sin + first / 2);
  const float4 sin = *reinterpret_cast<const float4*>(cos_sin + rotary_dim / 2 + first / 2);
  const float cosines[4] = {cos.x, cos.y, cos.z, cos.w};
  const float sines[4] = {sin.x, sin.y, sin.z, sin.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float a = x.v[2 * i], b = x.v[2 * i + 1];
    x.v[2 * i] = a * cosines[i] - b * sines[i];
    x.v[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

// All lanes of the warp take part; those without a pair hold zeros.
__device__ void norm(const float* weight, float eps, int head_dim, int lanes, bool active,
                     Pair& pair) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kVecElems; ++i) {
    squares += pair.a.v[i] * pair.a.v[i] + pair.b.v[i] * pair.b.v[i];
  }
  const float scale = rsqrtf(sum_lanes(squares, lanes) / static_cast<float>(head_dim) + eps);
  if (!active) return;
  const Vec8 wa = load8(weight + pair.first), wb = load8(weight + pair.second);
#pragma unroll
  for (int i = 0; i < kVecElems; ++i) {
    pair.a.v[i] *= scale * wa.v[i];
    pair.b.v[i] *= scale * wb.v[i];
  }
}

// `slice`: K head or num_kv_heads + V head.
__device__ void store_kv(const PagedLayer& kv, int32_t slot, int slice, const Pair& pair) {
  const int32_t page = slot / kv.page_tokens, offset = slot % kv.page_tokens;
  std::byte* head = kv.base + page * kv.page_bytes + kv.layer_offset +
                    (int64_t{slice} * kv.page_tokens + offset) * kv.head_dim * 2;
  auto* vecs = reinterpret_cast<uint4*>(head);
  const bool half = kv.dtype == Dtype::kF16;
  vecs[pair.first / kVecElems] = half ? to_half(pair.a) : to_bf16(pair.a);
  vecs[pair.second / kVecElems] = half ? to_half(pair.b) : to_bf16(pair.b);
}

// `lanes`: head_dim / 16 rounded up to a power of two, so that a head lies inside a warp.
__global__ void __launch_bounds__(kThreads)
    rope_kv_kernel(const RopeKvArgs<Bf16, F16> args, int lanes) {
  let_next_kernel_start();
  const PagedLayer& kv = args.kv;
  const int heads = args.num_heads + 2 * kv.num_kv_heads;
  const int64_t work = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes;
  const int lane = threadIdx.x % lanes;
  const bool active = work < int64_t{args.num_tokens} * heads && lane < kv.head_dim / kPairElems;
  const auto token = static_cast<int32_t>(work / heads);
  const int head = static_cast<int>(work % heads);
  const bool is_q = head < args.num_heads;
  const bool is_v = head >= args.num_heads + kv.num_kv_heads;
  wait_for_previous_kernels();

  Pair pair{};
  place_half(lane, args.interleaved || is_v ? 0 : args.rotary_dim, pair);
  const F16* x = args.qkv + work * kv.head_dim;
  if (active) {
    pair.a = load8(x + pair.first);
    pair.b = load8(x + pair.second);
  }
  const float* weight = is_q ? args.q_norm : args.k_norm;
  // The same for the whole warp but for the kind of head; v passes through the sum unchanged.
  if (args.q_norm != nullptr || args.k_norm != nullptr) {
    norm(weight, args.norm_eps, kv.head_dim, lanes, active && !is_v && weight != nullptr, pair);
  }
  if (!active) return;
  if (!is_v) {
    const float* cos_sin = args.cos_sin + int64_t{args.positions[token]} * args.rotary_dim;
    if (args.interleaved) {
      rotate_interleaved(cos_sin, args.rotary_dim, pair.first, pair.a);
      rotate_interleaved(cos_sin, args.rotary_dim, pair.second, pair.b);
    } else {
      rotate_half(cos_sin, args.rotary_dim, pair);
    }
  }
  if (is_q) {
    Bf16* q = args.q + token * args.q_stride + head * kv.head_dim;
    store8(q + pair.first, pair.a);
    store8(q + pair.second, pair.b);
  } else if (const int32_t slot = args.slot_mapping[token]; slot >= 0) {
    store_kv(kv, slot, head - args.num_heads, pair);
  }
}

}  // namespace

void rope_kv_cuda(const RopeKvArgs<Bf16, F16>& args, cudaStream_t stream) {
  const int32_t head_dim = args.kv.head_dim;
  CHECK(args.kv.dtype == Dtype::kBF16 || args.kv.dtype == Dtype::kF16)
      << "KV dtype is " << dtype_info(args.kv.dtype).name << ": ";
  if (head_dim % kPairElems != 0 ||
      args.rotary_dim % (args.interleaved ? kVecElems : kPairElems) != 0) {
    return rope_kv_any_cuda(args, stream);
  }
  CHECK_LE(head_dim, 32 * kPairElems) << "rope_kv";
  CHECK_LE(args.rotary_dim, head_dim) << "rope_kv";
  CHECK_EQ(args.q_stride % kVecElems, 0) << "q's rows want 16-byte alignment";
  CHECK_EQ(args.kv.page_bytes % 16, 0) << "pages want 16-byte alignment";
  CHECK_EQ(args.kv.layer_offset % 16, 0) << "pages want 16-byte alignment";
  const auto lanes = std::bit_ceil(static_cast<unsigned>(head_dim / kPairElems));
  const int64_t heads = int64_t{args.num_tokens} * (args.num_heads + 2 * args.kv.num_kv_heads);
  const auto blocks = static_cast<unsigned>((heads * lanes + kThreads - 1) / kThreads);
  launch("rope_kv", {.grid = dim3(blocks), .block = dim3(kThreads)}, stream, rope_kv_kernel, args,
         static_cast<int>(lanes));
}

}  // namespace baton
