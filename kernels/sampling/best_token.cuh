// The largest logit of a row's part, and the likeliest tokens in order. Ties go to the lowest id,
// NaN never wins. Code of a whole block.
#pragma once

#include <cstdint>

#include "kernels/sampling/sampling.h"

namespace baton {

inline constexpr int kScanThreads = 256;
inline constexpr int kScanWarps = kScanThreads / 32;

struct BestToken {
  float value;
  int32_t token;  // INT32_MAX: there is none

  static __device__ BestToken none() { return {-INFINITY, INT32_MAX}; }
  // In the order of likelihood this one comes before the other.
  __device__ bool before(BestToken other) const {
    // Without branches, so that loops over it load ahead.
    return (value > other.value) | ((value == other.value) & (token < other.token));
  }
  __device__ void take(BestToken other) {
    const bool better = other.before(*this);
    value = better ? other.value : value;
    token = better ? other.token : token;
  }
};

// In every lane.
inline __device__ BestToken best_of_warp(BestToken best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(~0u, best.value, offset);
    best.take({value, __shfl_xor_sync(~0u, best.token, offset)});
  }
  return best;
}

// In every thread.
inline __device__ BestToken best_of_block(BestToken best, BestToken (&warps)[kScanWarps]) {
  best = best_of_warp(best);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  best = BestToken::none();
  for (int w = 0; w < kScanWarps; ++w) best.take(warps[w]);
  return best;
}

// A token and its logit as a number that is larger the earlier they come; 0: none.
inline constexpr int kTokenBits = 19;
inline __device__ uint64_t order_key(BestToken best) {
  if (best.token == INT32_MAX) return 0;
  const uint32_t bits = __float_as_uint(best.value + 0.0f);  // -0 is as large as 0
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << kTokenBits | ((1u << kTokenBits) - 1 - best.token);
}
inline __device__ BestToken token_of(uint64_t key) {
  if (key == 0) return BestToken::none();
  const auto ordered = static_cast<uint32_t>(key >> kTokenBits);
  const uint32_t bits = (ordered >> 31) != 0 ? ordered & 0x7fffffffu : ~ordered;
  const auto token = static_cast<uint32_t>(key) & ((1u << kTokenBits) - 1);
  return {__uint_as_float(bits), static_cast<int32_t>((1u << kTokenBits) - 1 - token)};
}

// The count-th largest of all threads' keys; 0 if fewer have one.
inline __device__ uint64_t largest_key(uint64_t own, int count) {
  uint64_t key = 0;
  for (uint64_t bit = uint64_t{1} << (31 + kTokenBits); bit > 0; bit >>= 1)
    if (__syncthreads_count(own >= (key | bit)) >= count) key |= bit;
  return key;
}

// Calls put(rank, key) for each of the keys that is among the first `count`. They are in shared
// memory, and nobody writes to it any more.
template <typename Put>
inline __device__ void rank_keys(const uint64_t* keys, int num_keys, int count, Put put) {
  for (int i = threadIdx.x; i < num_keys; i += blockDim.x) {
    const uint64_t own = keys[i];
    int rank = 0;
#pragma unroll 8
    for (int other = 0; other < num_keys; ++other) rank += keys[other] > own ? 1 : 0;
    if (rank < count) put(rank, own);
  }
}

// Calls visit(logit, token) for the thread's share of [begin, end). Four logits a load if
// `vectors`: the row and `begin` are aligned for it, and `end` is a multiple of four.
template <typename Visit>
inline __device__ void visit_share(const float* row, int begin, int end, bool vectors,
                                   Visit visit) {
  if (!vectors) {
    for (int i = begin + threadIdx.x; i < end; i += kScanThreads) visit(row[i], i);
    return;
  }
  constexpr int kLoads = 4;  // in flight
  constexpr int kStride = kScanThreads * 4;
  for (int first = begin + threadIdx.x * 4; first < end; first += kLoads * kStride) {
    float4 logits[kLoads];
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      const int i = first + n * kStride;
      if (i < end) logits[n] = *reinterpret_cast<const float4*>(row + i);
    }
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      const int i = first + n * kStride;
      if (i >= end) break;
      visit(logits[n].x, i);
      visit(logits[n].y, i + 1);
      visit(logits[n].z, i + 2);
      visit(logits[n].w, i + 3);
    }
  }
}

}  // namespace baton
