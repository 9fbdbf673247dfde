// Element and block formats: sizes, and the plain expansion that every fast kernel is tested
// against. Block layouts: GGUF v3 (ggml-common.h); little endian, float16 scales.
#include "kernels/dtype.h"

#include <cstring>

#include "base/check.h"
#include "kernels/cpu/half.h"

namespace baton {
namespace {

float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return float_from_half(bits);
}

uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// q of a 32-block of 4-bit values: element i is the low nibble of byte i, element i + 16 the high
// one.
int nibble_32(const uint8_t* q, int i) {
  return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

// Q4_0, Q4_1, Q5_0, Q5_1: [d][m if `has_min`][32 high bits if `has_high`][16 bytes of nibbles].
void dequantize_4_5(const uint8_t* block, bool has_min, bool has_high, float* dst) {
  const float d = half_at(block);
  const uint8_t* p = block + 2;
  const float m = has_min ? half_at(p) : 0;
  p += has_min ? 2 : 0;
  const uint32_t high = has_high ? word_at(p) : 0;
  p += has_high ? 4 : 0;
  const int offset = has_min ? 0 : (has_high ? 16 : 8);
  for (int i = 0; i < 32; ++i) {
    const int q = nibble_32(p, i) | static_cast<int>(high >> i & 1) << 4;
    dst[i] = d * static_cast<float>(q - offset) + m;
  }
}

void dequantize_q8_0(const uint8_t* block, float* dst) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Q4_K, Q5_K: [d][dmin][12 bytes: 8 scales and 8 mins of 6 bits][32 bytes of high bits in Q5_K][128
// bytes of nibbles].
void dequantize_k(const uint8_t* block, bool has_high, float* dst) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* low = high + (has_high ? 32 : 0);
  for (int sub = 0; sub < 8; ++sub) {
    const KScale s = k_scale(block + 4, sub);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = low[sub / 2 * 32 + i];
      int q = sub % 2 == 0 ? byte & 15 : byte >> 4;
      if (has_high) q |= (high[i] >> sub & 1) << 4;
      dst[sub * 32 + i] = d * s.scale * static_cast<float>(q) - dmin * s.min;
    }
  }
}

// Q6_K: [128 bytes of low nibbles][64 bytes of high pairs][16 int8 scales, one per 16 elements][d].
void dequantize_q6_k(const uint8_t* block, float* dst) {
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const float scale = static_cast<int8_t>(block[192 + i / 16]);
    dst[i] = d * scale * static_cast<float>(q6_k_value(block, i) - 32);
  }
}

void dequantize_block(Dtype dtype, const uint8_t* block, float* dst) {
  switch (dtype) {
    case Dtype::kF32:
      std::memcpy(dst, block, sizeof(float));
      return;
    case Dtype::kF16:
      *dst = half_at(block);
      return;
    case Dtype::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, block, sizeof(bits));
      *dst = float_from_bfloat(bits);
      return;
    }
    case Dtype::kQ4_0:
      return dequantize_4_5(block, false, false, dst);
    case Dtype::kQ4_1:
      return dequantize_4_5(block, true, false, dst);
    case Dtype::kQ5_0:
      return dequantize_4_5(block, false, true, dst);
    case Dtype::kQ5_1:
      return dequantize_4_5(block, true, true, dst);
    case Dtype::kQ8_0:
      return dequantize_q8_0(block, dst);
    case Dtype::kQ4_K:
      return dequantize_k(block, false, dst);
    case Dtype::kQ5_K:
      return dequantize_k(block, true, dst);
    case Dtype::kQ6_K:
      return dequantize_q6_k(block, dst);
  }
}

}  // namespace

KScale k_scale(const uint8_t* scales, int sub) {
  if (sub < 4) return {scales[sub] & 63, scales[sub + 4] & 63};
  return {(scales[sub + 4] & 15) | (scales[sub - 4] >> 6) << 4,
          (scales[sub + 4] >> 4) | (scales[sub] >> 6) << 4};
}

int q6_k_value(const uint8_t* block, int i) {
  const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
  const uint8_t low = block[half * 64 + quarter % 2 * 32 + j];
  const uint8_t high = block[128 + half * 32 + j];
  return (quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3) << 4;
}

const DtypeInfo& dtype_info(Dtype dtype) {
  static constexpr DtypeInfo kInfo[] = {
      {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q4_0", 32, 18},
      {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},   {"Q8_0", 32, 34},
      {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
  };
  return kInfo[static_cast<int>(dtype)];
}

int64_t dtype_bytes(Dtype dtype, int64_t elems) {
  const DtypeInfo& info = dtype_info(dtype);
  CHECK_EQ(elems % info.block_elems, 0) << info.name << " has blocks of " << info.block_elems;
  return elems / info.block_elems * info.block_bytes;
}

void dequantize(Dtype dtype, const void* src, float* dst, int64_t elems) {
  const DtypeInfo& info = dtype_info(dtype);
  CHECK_EQ(elems % info.block_elems, 0) << info.name << " has blocks of " << info.block_elems;
  const auto* block = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < elems; i += info.block_elems, block += info.block_bytes) {
    dequantize_block(dtype, block, dst + i);
  }
}

}  // namespace baton
