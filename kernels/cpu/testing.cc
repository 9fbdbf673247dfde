#include "kernels/cpu/testing.h"

#include <cstring>

#include "kernels/cpu/half.h"

namespace baton {
namespace {

void put_half(uint8_t* p, float value) {
  const uint16_t half = half_from_float(value);
  std::memcpy(p, &half, sizeof(half));
}

// Overwrites the float fields of a block of random bits.
void put_scales(Dtype dtype, uint8_t* block, float scale) {
  switch (dtype) {
    case Dtype::kF32:
      std::memcpy(block, &scale, sizeof(scale));
      return;
    case Dtype::kF16:
      put_half(block, scale);
      return;
    case Dtype::kBF16: {
      const uint16_t bfloat = bfloat_from_float(scale);
      std::memcpy(block, &bfloat, sizeof(bfloat));
      return;
    }
    case Dtype::kQ4_1:
    case Dtype::kQ5_1:
      put_half(block + 2, -8 * scale);
      put_half(block, scale);
      return;
    case Dtype::kQ4_K:
    case Dtype::kQ5_K:
      put_half(block + 2, scale / 4);
      put_half(block, scale / 32);
      return;
    case Dtype::kQ6_K:
      put_half(block + 208, scale / 64);
      return;
    default:
      put_half(block, scale);
      return;
  }
}

}  // namespace

RandomTensor::RandomTensor(std::mt19937& random, Dtype dtype, int64_t rows, int64_t cols)
    : dtype(dtype), rows(rows), cols(cols), bytes(dtype_bytes(dtype, rows * cols) + kMisalignment) {
  std::normal_distribution<float> normal(0, 0.05f);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const int64_t block_bytes = dtype_info(dtype).block_bytes;
  for (size_t at = kMisalignment; at < bytes.size(); at += block_bytes) {
    put_scales(dtype, bytes.data() + at, normal(random));
  }
}

}  // namespace baton
