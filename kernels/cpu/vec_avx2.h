// 16 floats, 16 int32 or 64 bytes at a time as two AVX2 registers (with FMA and F16C). See vec.h.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/half.h"

namespace baton::avx2 {

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct U8x64 {
  __m256i lo, hi;
};

constexpr const char* kName = "avx2";
constexpr int kTokenTile = 4;
constexpr int kFloatTileRows = 2;
constexpr int kFloatTileTokens = 2;
constexpr int kAttentionRows = 4;
constexpr int kAttentionVecs = 1;
constexpr int kInt8Offset = 0;

// All ones in the first n of eight lanes; n may be out of range on either side.
BATON_INLINE __m256i first_lanes(int n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
}

BATON_INLINE F32x16 zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
BATON_INLINE F32x16 broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
BATON_INLINE F32x16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
BATON_INLINE F32x16 load_f32(const void* p) {
  return load(static_cast<const float*>(p));
}
BATON_INLINE F32x16 load_first(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(n - 8))};
}
BATON_INLINE void store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
BATON_INLINE void store_first(float* p, F32x16 a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.lo);
  _mm256_maskstore_ps(p + 8, first_lanes(n - 8), a.hi);
}
BATON_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
BATON_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
BATON_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
BATON_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
BATON_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
BATON_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
BATON_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
BATON_INLINE F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
BATON_INLINE F32x16 round_even(F32x16 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
BATON_INLINE F32x16 keep_where_ge(F32x16 a, F32x16 x, F32x16 limit) {
  return {_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_GE_OQ)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_GE_OQ))};
}
BATON_INLINE __m256 scale_by_power_8(__m256 a, __m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
BATON_INLINE F32x16 scale_by_power(F32x16 a, F32x16 n) {
  return {scale_by_power_8(a.lo, n.lo), scale_by_power_8(a.hi, n.hi)};
}

BATON_INLINE float sum_lanes(F32x16 a) {
  const __m256 b = _mm256_add_ps(a.lo, a.hi);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
BATON_INLINE float max_lanes(F32x16 a) {
  const __m256 b = _mm256_max_ps(a.lo, a.hi);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

BATON_INLINE __m128i load_128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
BATON_INLINE F32x16 load_f16(const void* p) {
  const char* bytes = static_cast<const char*>(p);
  return {_mm256_cvtph_ps(load_128(bytes)), _mm256_cvtph_ps(load_128(bytes + 16))};
}
BATON_INLINE void store_f16(void* p, F32x16 a) {
  __m128i* halves = static_cast<__m128i*>(p);
  _mm_storeu_si128(halves, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
BATON_INLINE __m256 load_bf16_8(const void* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
}
BATON_INLINE F32x16 load_bf16(const void* p) {
  const char* bytes = static_cast<const char*>(p);
  return {load_bf16_8(bytes), load_bf16_8(bytes + 16)};
}
BATON_INLINE F32x16 load_i8_as_float(const int8_t* p) {
  const __m128i bytes = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
BATON_INLINE F32x16 load_u8_as_float(const uint8_t* p) {
  const __m128i bytes = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

BATON_INLINE I32x16 zero_int() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
BATON_INLINE F32x16 to_float(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
BATON_INLINE I32x16 store_int8(int8_t* p, F32x16 a) {
  const __m256i lo = _mm256_cvtps_epi32(a.lo), hi = _mm256_cvtps_epi32(a.hi);
  // packs works within 128-bit halves: the permutation puts the words back in order.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  return {lo, hi};
}

BATON_INLINE __m256i load_256(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
BATON_INLINE U8x64 load_bytes(const uint8_t* p) {
  return {load_256(p), load_256(p + 32)};
}
BATON_INLINE U8x64 load_int8(const uint8_t* p) {
  return load_bytes(p);
}
BATON_INLINE U8x64 and_each(U8x64 a, uint8_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
BATON_INLINE U8x64 operator|(U8x64 a, U8x64 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
BATON_INLINE U8x64 shift_right(U8x64 a, int n) {
  return {(__m256i)((__v16hu)a.lo >> n), (__m256i)((__v16hu)a.hi >> n)};
}
BATON_INLINE U8x64 shift_left(U8x64 a, int n) {
  return {(__m256i)((__v16hu)a.lo << n), (__m256i)((__v16hu)a.hi << n)};
}

BATON_INLINE __m256i dot4_8(__m256i acc, __m256i w, __m256i x) {
  const __m256i pairs = _mm256_maddubs_epi16(w, x);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
BATON_INLINE __m256i broadcast_four(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}
// w at most 63: 2 * 63 * 127 stays inside the 16 bits of maddubs.
BATON_INLINE I32x16 dot4(I32x16 acc, U8x64 w, const int8_t* x) {
  const __m256i four = broadcast_four(x);
  return {dot4_8(acc.lo, w.lo, four), dot4_8(acc.hi, w.hi, four)};
}
// w signed: |w| * (x with the sign of w), because unsigned bytes up to 255 would saturate; 2 * 128
// * 127 does not.
BATON_INLINE I32x16 dot4_int8(I32x16 acc, U8x64 w, const int8_t* x) {
  const __m256i four = broadcast_four(x);
  return {dot4_8(acc.lo, _mm256_abs_epi8(w.lo), _mm256_sign_epi8(four, w.lo)),
          dot4_8(acc.hi, _mm256_abs_epi8(w.hi), _mm256_sign_epi8(four, w.hi))};
}

BATON_INLINE void transpose(F32x16 (&rows)[16]) {
  alignas(32) float from[16][16];
  alignas(32) float to[16][16];
  for (int i = 0; i < 16; ++i) store(from[i], rows[i]);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) to[j][i] = from[i][j];
  }
  for (int i = 0; i < 16; ++i) rows[i] = load(to[i]);
}

}  // namespace baton::avx2
