// What the attention kernels share: loads of tensor core operands, the score's transformation and
// the arithmetic of running softmax sums. Device code only.
#pragma once

#include <cstdint>

#include "kernels/attention/attention_params.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"

namespace baton {

__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// 16 bytes to shared memory; zeros if not `wanted`.
__device__ __forceinline__ void copy_or_zero(uint32_t to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(wanted ? 16 : 0)
               : "memory");
}

inline constexpr uint32_t kTwoOnes = 0x3f803f80;  // bf16

__device__ __forceinline__ float minus_infinity() {
  return __int_as_float(0xff800000);
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float capped_score(const AttentionParams& p, float dot) {
  // tanh(x) = 1 - 2 / (exp(2x) + 1); exp overflowing to infinity gives 1.
  constexpr float kTwoLog2E = 2.885390082f;
  const float x = fminf(dot * p.score_factor, 40.0f);
  return p.cap_factor * (1.0f - __fdividef(2.0f, exp2f(kTwoLog2E * x) + 1.0f));
}

// Turns q.k into powers of two for the softmax: the branch is outside of the loops.
template <int kRows, int kColumns>
__device__ __forceinline__ void to_scores(const AttentionParams& p,
                                          float (&dots)[kRows][kColumns]) {
  if (p.cap_factor == 0) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) dots[r][c] *= p.score_factor;
    }
  } else {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) dots[r][c] = capped_score(p, dots[r][c]);
    }
  }
}

__device__ __forceinline__ bool is_visible(int32_t key, int32_t position, int32_t window) {
  return key <= position && (window == 0 || key > position - window);
}

// What to subtract from scores of maximum `max`: nothing where no score was visible yet.
__device__ __forceinline__ float finite_max(float max) {
  return max == minus_infinity() ? 0.0f : max;
}

}  // namespace baton
