#include "kernels/activation/activation_cuda.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {

TEST_CASE("CUDA: activation equals the CPU's, also for very large inputs") {
  if (no_gpu()) return;
  std::mt19937 random(13);
  const auto cpu = make_cpu_backend(1);
  for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
    for (const int64_t rows : {1, 5, 300}) {
      for (const int32_t cols : {8, 1536, 14336}) {
        CAPTURE(rows);
        CAPTURE(cols);
        auto gate_up = rounded_to_half(random_floats(random, rows * 2 * cols, 3));
        gate_up[0] = 100, gate_up[1] = -100, gate_up[2] = 20000, gate_up[3] = -20000;
        std::vector<float> expected(rows * cols);
        cpu->activation({gate_up.data(), expected.data(), rows, cols, kind});
        const DeviceArray<F16> in(to_half(gate_up));
        const DeviceArray<Bf16> out(expected.size());
        activation_cuda({in.data(), out.data(), rows, cols, kind}, nullptr);
        // One rounding to bf16 is 2^-8 at most, and the largest element outweighs the others.
        CHECK(relative_error(to_floats(out.host()), expected) < 5e-3);
      }
    }
  }
}

TEST_CASE("CUDA: a product beyond f16 is its largest value to the activation, and NaN stays NaN") {
  if (no_gpu()) return;
  std::vector<float> gate_up(16, 1.0F);
  gate_up[0] = INFINITY, gate_up[1] = -INFINITY, gate_up[2] = NAN, gate_up[8 + 3] = -INFINITY;
  const DeviceArray<F16> in(to_half(gate_up));
  const DeviceArray<Bf16> out(8);
  activation_cuda({in.data(), out.data(), 1, 8, Activation::kSilu}, nullptr);
  const std::vector<float> y = to_floats(out.host());
  CHECK(y[0] == 65536.0F);  // 65504 in bf16
  CHECK(y[1] == 0.0F);
  CHECK(std::isnan(y[2]));
  CHECK(y[3] == doctest::Approx(-65504 * 0.7310586).epsilon(0x1p-8));
  CHECK(y[4] == doctest::Approx(0.7310586).epsilon(0x1p-8));
}

}  // namespace baton
