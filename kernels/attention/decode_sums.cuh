// The running sums of a softmax and how two of them become one. Device code only.
#pragma once

#include "kernels/attention/attention_tile.cuh"

namespace baton {

// How the sums of two runs of keys become one. With explicit roundings, so that whoever adds up a
// sequence's units gets the same bits.
struct Factors {
  float max, earlier, later;
  __device__ float add(float earlier_sum, float later_sum) const {
    return __fmaf_rn(later_sum, later, __fmul_rn(earlier_sum, earlier));
  }
};
__device__ __forceinline__ Factors factors(float earlier_max, float later_max) {
  const float max = fmaxf(earlier_max, later_max);
  const float reference = finite_max(max);
  return {max, exp2_fast(earlier_max - reference), exp2_fast(later_max - reference)};
}

// Sums of exp2(score - max) * value for this thread's elements: of pair p (16 columns) of head_dim,
// out[2p] its first 8 columns and out[2p + 1] the others, as mma_16x8x16 lays them out. total[0]
// and total[2] are the sums of weights of the thread's two rows.
template <int kPairs>
struct DecodeSums {
  float max[2];
  float total[4];
  float out[2 * kPairs][4];

  __device__ void clear() {
    max[0] = max[1] = minus_infinity();
    for (float& value : total) value = 0;
#pragma unroll
    for (auto& block : out) {
      for (float& value : block) value = 0;
    }
  }

  __device__ void scale(float low, float high) {
    total[0] *= low;
    total[2] *= high;
#pragma unroll
    for (auto& block : out) {
      block[0] *= low;
      block[1] *= low;
      block[2] *= high;
      block[3] *= high;
    }
  }

  // Adds the sums of later keys.
  __device__ void add(const DecodeSums& later) {
    Factors f[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      f[r] = factors(max[r], later.max[r]);
      max[r] = f[r].max;
      total[2 * r] = f[r].add(total[2 * r], later.total[2 * r]);
    }
#pragma unroll
    for (int b = 0; b < 2 * kPairs; ++b) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[b][e] = f[e / 2].add(out[b][e], later.out[b][e]);
    }
  }
};

}  // namespace baton
