#include "kernels/rms_norm/rms_norm_cuda.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Rows lie `gap` elements apart; what is between them must stay as it was.
void check(BackendOf<float>& cpu, std::mt19937& random, int64_t rows, int32_t cols, int64_t gap,
           bool in_place) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(gap);
  const int64_t stride = cols + gap;
  const auto x = rounded_to_bf16(random_floats(random, rows * stride, 3));
  const auto weight = random_floats(random, cols);
  std::vector<float> expected = in_place ? x : std::vector<float>(x.size(), 0.0F);
  RmsNormArgs<float> reference{x.data(), weight.data(), expected.data(), rows,
                               cols,     stride,        stride,          1e-5F};
  cpu.rms_norm(reference);

  const DeviceArray<Bf16> x_device(to_bf16(x)), y_device(x.size());
  const DeviceArray<float> weight_device(weight);
  Bf16* y = in_place ? x_device.data() : y_device.data();
  rms_norm_cuda({x_device.data(), weight_device.data(), y, rows, cols, stride, stride, 1e-5F},
                nullptr);
  std::vector<float> got = to_floats((in_place ? x_device : y_device).host());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = cols; i < stride && !in_place; ++i) {
      float& between = got[row * stride + i];
      CHECK(std::isnan(between));
      between = 0;
    }
  }
  CHECK(relative_error(got, expected) < 3e-3);
}

}  // namespace

TEST_CASE("CUDA: rms_norm equals the CPU's, in place and over strides") {
  if (no_gpu()) return;
  std::mt19937 random(11);
  const auto cpu = make_cpu_backend(1);
  for (const int32_t cols : {8, 64, 576, 4096, 8192, 8200, 12288, 20480}) {
    for (const int64_t rows : {1, 3, 65}) {
      check(*cpu, random, rows, cols, 0, false);
      check(*cpu, random, rows, cols, 24, rows == 3);
    }
  }
}

}  // namespace baton
