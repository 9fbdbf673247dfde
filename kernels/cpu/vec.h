// The vector unit of the ISA that a file is being built for. kernels/*/<op>_isa.cc are compiled
// once per ISA with BATON_ISA naming the namespace (kernels/CMakeLists.txt); all they know of the
// ISA is behind these three headers: the types F32x16, I32x16 and U8x64, the same functions on
// them, and the sizes of the register tiles. Files built for an ISA use no inline function of the
// standard library: the linker keeps one copy for all.
#pragma once

#include <cstdint>

#define BATON_INLINE [[gnu::always_inline]] static inline

#if defined(BATON_ISA_AVX512)
#define BATON_ISA avx512
#include "kernels/cpu/vec_avx512.h"
#elif defined(BATON_ISA_AVX2)
#define BATON_ISA avx2
#include "kernels/cpu/vec_avx2.h"
#else
#define BATON_ISA portable
#include "kernels/cpu/vec_portable.h"
#endif

namespace baton::BATON_ISA {

// exp(x) to about 1 ulp; 0 below the smallest normal result, at most exp(88). Reduction x = n ln 2
// + r with ln 2 in two parts, then a degree-6 polynomial (minimax on |r| <= ln 2 / 2).
BATON_INLINE F32x16 exp(F32x16 x) {
  const F32x16 lowest = broadcast(-87.3f);
  const F32x16 clamped = min(max(x, lowest), broadcast(88.0f));
  const F32x16 n = round_even(clamped * broadcast(1.44269504f));
  F32x16 r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  F32x16 p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = fma(p, r * r, r) + broadcast(1.0f);
  return keep_where_ge(scale_by_power(p, n), x, lowest);
}

// tanh(x) = 1 - 2 / (exp(2 x) + 1).
BATON_INLINE F32x16 tanh(F32x16 x) {
  const F32x16 one = broadcast(1.0f);
  return one - broadcast(2.0f) / (exp(x + x) + one);
}

}  // namespace baton::BATON_ISA
