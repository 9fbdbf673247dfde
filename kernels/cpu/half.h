// float16 and bfloat16 as bits, in plain integer code. `static`, because files built for different
// ISAs include it: the linker may keep only one copy of an inline function, and that copy might
// need an ISA the CPU lacks.
#pragma once

#include <cstdint>
#include <cstring>

namespace baton {

static inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

static inline uint32_t bits_from_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static inline float float_from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  // Shifting the magnitude into place leaves an exponent that is 112 too small; a multiplication by
  // 2^112 corrects it and normalises subnormals for free.
  const float scaled = float_from_bits(magnitude << 13) * 0x1p112f;
  const uint32_t infinity_or_nan = magnitude >= 0x7c00 ? 0x7f800000 : 0;
  return float_from_bits(bits_from_float(scaled) | infinity_or_nan | sign);
}

// Rounds to nearest, ties to even.
static inline uint16_t half_from_float(float value) {
  const uint32_t bits = bits_from_float(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds beyond 65504
  if (magnitude < 0x38800000) {
    // Subnormal: the addition aligns the last kept bit with the last bit of 0.5 and rounds.
    const float rounded = float_from_bits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_from_float(rounded) - 0x3f000000));
  }
  const uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | rounded >> 13);
}

static inline float float_from_bfloat(uint16_t bfloat) {
  return float_from_bits(static_cast<uint32_t>(bfloat) << 16);
}

// Rounds to nearest, ties to even; NaN stays a (quiet) NaN.
static inline uint16_t bfloat_from_float(float value) {
  const uint32_t bits = bits_from_float(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace baton
