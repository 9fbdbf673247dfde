#include "kernels/rms_norm/rms_norm_cuda.h"

#include <algorithm>

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Rows lie `gap` elements apart; what is between them must stay as it was.
void check(BackendOf<float>& cpu, std::mt19937& random, int64_t rows, int32_t cols, int64_t gap) {
  CAPTURE(rows);
  CAPTURE(cols);
  CAPTURE(gap);
  const int64_t stride = cols + gap;
  const auto x = random_floats(random, rows * stride, 3);
  const auto weight = random_floats(random, cols);
  std::vector<float> expected(x.size(), 0.0F);
  RmsNormArgs<float> reference{x.data(), weight.data(), expected.data(), rows,
                               cols,     stride,        stride,          1e-5F};
  cpu.rms_norm(reference);

  const DeviceArray<float> x_device(x), weight_device(weight);
  const DeviceArray<F16> y(x.size());
  rms_norm_cuda(
      {x_device.data(), weight_device.data(), y.data(), rows, cols, stride, stride, 1e-5F},
      nullptr);
  std::vector<float> got = to_floats(y.host());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = cols; i < stride; ++i) {
      float& between = got[row * stride + i];
      CHECK(std::isnan(between));
      between = 0;
    }
  }
  CHECK(relative_error(got, expected) < 4e-4);
}

}  // namespace

TEST_CASE("CUDA: rms_norm equals the CPU's, over strides too") {
  if (no_gpu()) return;
  std::mt19937 random(11);
  const auto cpu = make_cpu_backend(1);
  for (const int32_t cols : {8, 64, 576, 4096, 8192, 8200, 12288, 20480}) {
    for (const int64_t rows : {1, 3, 65}) {
      check(*cpu, random, rows, cols, 0);
      check(*cpu, random, rows, cols, 24);
    }
  }
}

TEST_CASE("CUDA: a short result of rms_norm has 8 significant bits, rounded to nearest") {
  if (no_gpu()) return;
  std::mt19937 random(12);
  constexpr int32_t kCols = 4096;
  const DeviceArray<float> x(random_floats(random, kCols, 3)), weight(random_floats(random, kCols));
  const DeviceArray<F16> whole(kCols), rounded(kCols);
  RmsNormArgs<float, F16> args{x.data(), weight.data(), whole.data(), 1,
                               kCols,    kCols,         kCols,        1e-5F};
  rms_norm_cuda(args, nullptr);
  args.y = rounded.data();
  args.short_y = true;
  rms_norm_cuda(args, nullptr);
  const std::vector<float> got = to_floats(rounded.host()), want = to_floats(whole.host());
  CHECK(got == rounded_to_bf16(got));
  double worst = 0;
  for (int32_t i = 0; i < kCols; ++i)
    worst = std::max(worst, std::fabs(got[i] - want[i]) / (std::fabs(double{want[i]}) + 1e-3));
  CHECK(worst < 0x1.04p-8);  // half a unit of 8 bits, and what f16 had rounded before
  CHECK(worst > 0x1p-9);
}

TEST_CASE("CUDA: what a norm makes of an outlier under a large weight stays finite in f16") {
  if (no_gpu()) return;
  constexpr int32_t kCols = 8192;
  std::vector<float> x(kCols, 1e-3F), weight(kCols, 1.0F);
  x[5] = -3e4F, weight[5] = 1e4F;
  const DeviceArray<float> x_device(x), weight_device(weight);
  const DeviceArray<F16> y(kCols);
  rms_norm_cuda({x_device.data(), weight_device.data(), y.data(), 1, kCols, kCols, kCols, 1e-5F},
                nullptr);
  CHECK(to_floats(y.host())[5] == -65504.0F);
}

}  // namespace baton
