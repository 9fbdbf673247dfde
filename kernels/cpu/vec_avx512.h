// 16 floats, 16 int32 or 64 bytes at a time with AVX-512 (F, BW, VL, DQ, VNNI). See vec.h.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/half.h"

namespace baton::avx512 {

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct U8x64 {
  __m512i v;
};

constexpr const char* kName = "avx512_vnni";
// Register tiles: how many accumulators fit beside their operands in 32 registers.
constexpr int kTokenTile = 16;     // quantised linear: tokens a pass
constexpr int kFloatTileRows = 4;  // float linear
constexpr int kFloatTileTokens = 4;
constexpr int kAttentionRows = 6;  // attention: query rows x vectors
constexpr int kAttentionVecs = 4;
constexpr int kInt8Offset = 128;  // what load_int8 adds

BATON_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

BATON_INLINE F32x16 zero() {
  return {_mm512_setzero_ps()};
}
BATON_INLINE F32x16 broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
BATON_INLINE F32x16 load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
// Of memory that need not be aligned.
BATON_INLINE F32x16 load_f32(const void* p) {
  return {_mm512_loadu_ps(p)};
}
BATON_INLINE F32x16 load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
BATON_INLINE void store(float* p, F32x16 a) {
  _mm512_storeu_ps(p, a.v);
}
BATON_INLINE void store_first(float* p, F32x16 a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}
BATON_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
BATON_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
BATON_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
BATON_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
BATON_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
BATON_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
BATON_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
BATON_INLINE F32x16 abs(F32x16 a) {
  return {_mm512_abs_ps(a.v)};
}
BATON_INLINE F32x16 round_even(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// a where x >= limit, else 0.
BATON_INLINE F32x16 keep_where_ge(F32x16 a, F32x16 x, F32x16 limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), a.v)};
}
// a * 2^n for integral n.
BATON_INLINE F32x16 scale_by_power(F32x16 a, F32x16 n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}

BATON_INLINE float sum_lanes(F32x16 a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
BATON_INLINE float max_lanes(F32x16 a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

BATON_INLINE F32x16 load_f16(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
BATON_INLINE void store_f16(void* p, F32x16 a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
BATON_INLINE F32x16 load_bf16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
BATON_INLINE F32x16 load_i8_as_float(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
BATON_INLINE F32x16 load_u8_as_float(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}

BATON_INLINE I32x16 zero_int() {
  return {_mm512_setzero_si512()};
}
BATON_INLINE F32x16 to_float(I32x16 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
// Rounds to nearest even and stores as bytes; REQUIRES |a| <= 127. Returns the integers.
BATON_INLINE I32x16 store_int8(int8_t* p, F32x16 a) {
  const __m512i q = _mm512_cvtps_epi32(a.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(q));
  return {q};
}

BATON_INLINE U8x64 load_bytes(const uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
// Signed bytes in the form that dot4_int8 takes.
BATON_INLINE U8x64 load_int8(const uint8_t* p) {
  return {_mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(static_cast<char>(0x80)))};
}
BATON_INLINE U8x64 and_each(U8x64 a, uint8_t mask) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
BATON_INLINE U8x64 operator|(U8x64 a, U8x64 b) {
  return {_mm512_or_si512(a.v, b.v)};
}
// Shifts 16-bit units: bits cross between neighbouring bytes, the caller masks them away.
BATON_INLINE U8x64 shift_right(U8x64 a, int n) {
  return {(__m512i)((__v32hu)a.v >> n)};
}
BATON_INLINE U8x64 shift_left(U8x64 a, int n) {
  return {(__m512i)((__v32hu)a.v << n)};
}

// acc[r] + sum over j < 4 of w[4 r + j] * x[j].
BATON_INLINE I32x16 dot4(I32x16 acc, U8x64 w, const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(four))};
}
BATON_INLINE I32x16 dot4_int8(I32x16 acc, U8x64 w, const int8_t* x) {
  return dot4(acc, w, x);
}

// rows[i][j] becomes rows[j][i].
BATON_INLINE void transpose(F32x16 (&rows)[16]) {
  __m512 a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
    a[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm512_shuffle_ps(a[i + j], a[i + 2 + j], 0x44);
      b[i + 2 * j + 1] = _mm512_shuffle_ps(a[i + j], a[i + 2 + j], 0xee);
    }
  }
  for (int j = 0; j < 4; ++j) {
    const __m512 low0 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0x88);
    const __m512 high0 = _mm512_shuffle_f32x4(b[j], b[4 + j], 0xdd);
    const __m512 low1 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0x88);
    const __m512 high1 = _mm512_shuffle_f32x4(b[8 + j], b[12 + j], 0xdd);
    rows[j].v = _mm512_shuffle_f32x4(low0, low1, 0x88);
    rows[4 + j].v = _mm512_shuffle_f32x4(high0, high1, 0x88);
    rows[8 + j].v = _mm512_shuffle_f32x4(low0, low1, 0xdd);
    rows[12 + j].v = _mm512_shuffle_f32x4(high0, high1, 0xdd);
  }
}

}  // namespace baton::avx512
