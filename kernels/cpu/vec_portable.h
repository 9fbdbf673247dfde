// 16 floats, 16 int32 or 64 bytes at a time in plain loops, for any CPU; what the compiler makes of
// them is enough to be correct, not to be fast. See vec.h.
#pragma once

#include "kernels/cpu/half.h"

namespace baton::portable {

struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};
struct U8x64 {
  uint8_t v[64];
};

constexpr const char* kName = "portable";
constexpr int kTokenTile = 2;
constexpr int kFloatTileRows = 2;
constexpr int kFloatTileTokens = 1;
constexpr int kAttentionRows = 2;
constexpr int kAttentionVecs = 1;
constexpr int kInt8Offset = 0;

// A function of each lane i of the result.
template <typename F>
BATON_INLINE F32x16 each_lane(const F& f) {
  F32x16 result;
  for (int i = 0; i < 16; ++i) result.v[i] = f(i);
  return result;
}

BATON_INLINE F32x16 zero() {
  return {};
}
BATON_INLINE F32x16 broadcast(float x) {
  return each_lane([&](int) { return x; });
}
BATON_INLINE F32x16 load_f32(const void* p) {
  F32x16 a;
  __builtin_memcpy(a.v, p, sizeof(a.v));
  return a;
}
BATON_INLINE F32x16 load(const float* p) {
  return load_f32(p);
}
BATON_INLINE F32x16 load_first(const float* p, int n) {
  return each_lane([&](int i) { return i < n ? p[i] : 0.0f; });
}
BATON_INLINE void store(float* p, F32x16 a) {
  __builtin_memcpy(p, a.v, sizeof(a.v));
}
BATON_INLINE void store_first(float* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
BATON_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
BATON_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
BATON_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
BATON_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
// Rounds twice: a fused operation would be a library call on a CPU without one.
BATON_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return a * b + c;
}
BATON_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
BATON_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
BATON_INLINE F32x16 abs(F32x16 a) {
  return each_lane([&](int i) { return __builtin_fabsf(a.v[i]); });
}
// REQUIRES |a| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
BATON_INLINE F32x16 round_even(F32x16 a) {
  return (a + broadcast(0x1.8p23f)) - broadcast(0x1.8p23f);
}
BATON_INLINE F32x16 keep_where_ge(F32x16 a, F32x16 x, F32x16 limit) {
  return each_lane([&](int i) { return x.v[i] >= limit.v[i] ? a.v[i] : 0.0f; });
}
BATON_INLINE F32x16 scale_by_power(F32x16 a, F32x16 n) {
  return each_lane([&](int i) {
    return a.v[i] *
           float_from_bits(static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23);
  });
}

BATON_INLINE float sum_lanes(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
BATON_INLINE float max_lanes(F32x16 a) {
  float result = a.v[0];
  for (int i = 1; i < 16; ++i) result = a.v[i] > result ? a.v[i] : result;
  return result;
}

BATON_INLINE F32x16 load_f16(const void* p) {
  uint16_t halves[16];
  __builtin_memcpy(halves, p, sizeof(halves));
  return each_lane([&](int i) { return float_from_half(halves[i]); });
}
BATON_INLINE void store_f16(void* p, F32x16 a) {
  uint16_t halves[16];
  for (int i = 0; i < 16; ++i) halves[i] = half_from_float(a.v[i]);
  __builtin_memcpy(p, halves, sizeof(halves));
}
BATON_INLINE F32x16 load_bf16(const void* p) {
  uint16_t bfloats[16];
  __builtin_memcpy(bfloats, p, sizeof(bfloats));
  return each_lane([&](int i) { return float_from_bfloat(bfloats[i]); });
}
BATON_INLINE F32x16 load_i8_as_float(const int8_t* p) {
  return each_lane([&](int i) { return static_cast<float>(p[i]); });
}
BATON_INLINE F32x16 load_u8_as_float(const uint8_t* p) {
  return each_lane([&](int i) { return static_cast<float>(p[i]); });
}

BATON_INLINE I32x16 zero_int() {
  return {};
}
BATON_INLINE F32x16 to_float(I32x16 a) {
  return each_lane([&](int i) { return static_cast<float>(a.v[i]); });
}
BATON_INLINE I32x16 store_int8(int8_t* p, F32x16 a) {
  const F32x16 rounded = round_even(a);
  I32x16 result;
  for (int i = 0; i < 16; ++i) {
    result.v[i] = static_cast<int32_t>(rounded.v[i]);
    p[i] = static_cast<int8_t>(result.v[i]);
  }
  return result;
}

BATON_INLINE U8x64 load_bytes(const uint8_t* p) {
  U8x64 a;
  __builtin_memcpy(a.v, p, sizeof(a.v));
  return a;
}
BATON_INLINE U8x64 load_int8(const uint8_t* p) {
  return load_bytes(p);
}
template <typename F>
BATON_INLINE U8x64 each_byte(const F& f) {
  U8x64 result;
  for (int i = 0; i < 64; ++i) result.v[i] = static_cast<uint8_t>(f(i));
  return result;
}
BATON_INLINE U8x64 and_each(U8x64 a, uint8_t mask) {
  return each_byte([&](int i) { return a.v[i] & mask; });
}
BATON_INLINE U8x64 operator|(U8x64 a, U8x64 b) {
  return each_byte([&](int i) { return a.v[i] | b.v[i]; });
}
BATON_INLINE U8x64 shift_right(U8x64 a, int n) {
  return each_byte([&](int i) { return a.v[i] >> n; });
}
BATON_INLINE U8x64 shift_left(U8x64 a, int n) {
  return each_byte([&](int i) { return a.v[i] << n; });
}

// Vectors of the size that every CPU has; four of them make one of ours.
using I16x8 [[gnu::vector_size(16)]] = int16_t;
using U16x8 [[gnu::vector_size(16)]] = uint16_t;
using I32x4 [[gnu::vector_size(16)]] = int32_t;

BATON_INLINE I16x8 broadcast_pair(int8_t first, int8_t second) {
  const int32_t pair = static_cast<int32_t>(
      static_cast<uint16_t>(first) | static_cast<uint32_t>(static_cast<uint16_t>(second)) << 16);
  return (I16x8)(I32x4{pair, pair, pair, pair});
}

// acc[r] + sum of w * x, with w as 16-bit pairs of bytes that split(pairs, even, odd) widens. 2 *
// 128 * 127 fits into 16 bits, so products are added in pairs before they are widened again.
template <typename Split>
BATON_INLINE I32x16 add_products(I32x16 acc, const U8x64& w, const int8_t* x, const Split& split) {
  const I16x8 x_even = broadcast_pair(x[0], x[2]), x_odd = broadcast_pair(x[1], x[3]);
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    U16x8 pairs;
    I32x4 total;
    __builtin_memcpy(&pairs, w.v + 16 * part, sizeof(pairs));
    __builtin_memcpy(&total, acc.v + 4 * part, sizeof(total));
    I16x8 even, odd;
    split(pairs, even, odd);
    const I32x4 sums = (I32x4)(even * x_even + odd * x_odd);
    total += ((sums << 16) >> 16) + (sums >> 16);
    __builtin_memcpy(acc.v + 4 * part, &total, sizeof(total));
  }
  return acc;
}
BATON_INLINE I32x16 dot4(I32x16 acc, const U8x64& w, const int8_t* x) {
  return add_products(acc, w, x, [](U16x8 pairs, I16x8& even, I16x8& odd) {
    even = (I16x8)(pairs & 0xff);
    odd = (I16x8)(pairs >> 8);
  });
}
BATON_INLINE I32x16 dot4_int8(I32x16 acc, const U8x64& w, const int8_t* x) {
  return add_products(acc, w, x, [](U16x8 pairs, I16x8& even, I16x8& odd) {
    even = (I16x8)(pairs << 8) >> 8;
    odd = (I16x8)pairs >> 8;
  });
}

BATON_INLINE void transpose(F32x16 (&rows)[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) {
      const float t = rows[i].v[j];
      rows[i].v[j] = rows[j].v[i];
      rows[j].v[i] = t;
    }
  }
}

}  // namespace baton::portable
