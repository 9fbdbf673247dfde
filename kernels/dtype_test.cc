#include "kernels/dtype.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/half.h"

#include "tests/doctest.h"

namespace baton {
namespace {

void put_half(uint8_t* p, float value) {
  const uint16_t half = half_from_float(value);
  std::memcpy(p, &half, sizeof(half));
}

std::vector<float> expand(Dtype dtype, const std::vector<uint8_t>& block) {
  std::vector<float> values(dtype_info(dtype).block_elems);
  dequantize(dtype, block.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

TEST_CASE("every half survives the way through float") {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = float_from_half(static_cast<uint16_t>(half));
    if (std::isnan(value)) continue;
    CHECK_EQ(half_from_float(value), half);
  }
}

TEST_CASE("floats round to the nearest half, ties to even") {
  CHECK_EQ(half_from_float(1.0f + 0x1p-11f), 0x3c00);      // a tie: even stays
  CHECK_EQ(half_from_float(1.0f + 3 * 0x1p-11f), 0x3c02);  // a tie: odd goes up
  CHECK_EQ(half_from_float(65519.0f), 0x7bff);
  CHECK_EQ(half_from_float(65520.0f), 0x7c00);
  CHECK_EQ(half_from_float(0x1p-25f), 0);
  CHECK_EQ(half_from_float(0x1.8p-25f), 1);
  CHECK_EQ(half_from_float(-0x1p-24f), 0x8001);
  CHECK(std::isnan(float_from_half(half_from_float(NAN))));
}

TEST_CASE("floats round to the nearest bfloat16, ties to even") {
  CHECK_EQ(bfloat_from_float(1.0f + 0x1p-8f), 0x3f80);
  CHECK_EQ(bfloat_from_float(1.0f + 3 * 0x1p-8f), 0x3f82);
  CHECK_EQ(float_from_bfloat(bfloat_from_float(-0x1p100f)), -0x1p100f);
  CHECK(std::isnan(float_from_bfloat(bfloat_from_float(NAN))));
}

TEST_CASE("32-element blocks: low nibbles are the first half") {
  std::vector<uint8_t> q4_0(18, 0x88);
  put_half(q4_0.data(), 0.5f);
  q4_0[2] = 0xf1;  // element 0 is 1, element 16 is 15
  CHECK_EQ(expand(Dtype::kQ4_0, q4_0)[0], 0.5f * (1 - 8));
  CHECK_EQ(expand(Dtype::kQ4_0, q4_0)[16], 0.5f * (15 - 8));
  CHECK_EQ(expand(Dtype::kQ4_0, q4_0)[1], 0.0f);

  std::vector<uint8_t> q5_1(24, 0);
  put_half(q5_1.data(), 2.0f);
  put_half(q5_1.data() + 2, -3.0f);
  q5_1[4] = 0x02;  // fifth bit of element 1
  q5_1[9] = 0x43;  // elements 1 and 17
  CHECK_EQ(expand(Dtype::kQ5_1, q5_1)[1], 2.0f * 19 - 3);
  CHECK_EQ(expand(Dtype::kQ5_1, q5_1)[17], 2.0f * 4 - 3);

  std::vector<uint8_t> q8_0(34, 0);
  put_half(q8_0.data(), 0.25f);
  q8_0[2 + 31] = 0x80;
  CHECK_EQ(expand(Dtype::kQ8_0, q8_0)[31], -32.0f);
}

TEST_CASE("Q4_K: scales and mins of 6 bits") {
  std::vector<uint8_t> block(144, 0);
  put_half(block.data(), 1.0f);
  put_half(block.data() + 2, 0.5f);
  block[4 + 0] = 0x80 | 3;  // sub-block 0: scale 3; the top bits belong to sub-block 4
  block[4 + 4] = 5;         // sub-block 0: min 5
  block[4 + 8] = 0x21;      // sub-block 4: scale 1 | 2 << 4, min 2
  block[16] = 0x07;         // element 0
  block[16 + 64] = 0x02;    // element 128
  const std::vector<float> values = expand(Dtype::kQ4_K, block);
  CHECK_EQ(values[0], 3.0f * 7 - 0.5f * 5);
  CHECK_EQ(values[128], 33.0f * 2 - 0.5f * 2);
}

TEST_CASE("Q6_K: 4 low and 2 high bits, signed scales") {
  std::vector<uint8_t> block(210, 0);
  put_half(block.data() + 208, 1.0f);
  for (int i = 0; i < 16; ++i) block[192 + i] = 1;
  block[192 + 15] = 0xfe;  // scale of elements 240..255: -2
  block[64 + 63] = 0x90;   // element 255: low bits 9
  block[128 + 63] = 0xc0;  // element 255: high bits 3
  const std::vector<float> values = expand(Dtype::kQ6_K, block);
  CHECK_EQ(values[255], -2.0f * (9 + 48 - 32));
  CHECK_EQ(values[0], -32.0f);
}

}  // namespace
}  // namespace baton
