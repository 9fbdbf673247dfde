#include "kernels/activation/activation.h"

#include <cmath>

#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

double act(Activation kind, double x) {
  if (kind == Activation::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_CASE("activation agrees with plain loops, also far from zero") {
  std::mt19937 random(12);
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(2, isa.c_str());
    for (Activation kind : {Activation::kSilu, Activation::kGeluTanh}) {
      for (int32_t cols : {1, 16, 31, 96}) {
        constexpr int64_t kRows = 61;
        std::vector<float> gate_up = random_floats(random, kRows * 2 * cols, 4);
        gate_up[0] = 200;
        gate_up[2 * cols] = -200;
        std::vector<float> y(kRows * cols, NAN);
        backend->activation(
            {.gate_up = gate_up.data(), .y = y.data(), .rows = kRows, .cols = cols, .kind = kind});
        for (int64_t i = 0; i < kRows * cols; ++i) {
          const float* gate = gate_up.data() + i / cols * 2 * cols + i % cols;
          CAPTURE(isa);
          CAPTURE(*gate);
          const double want = act(kind, *gate) * gate[cols];
          CHECK_LE(std::fabs(y[i] - want), 2e-6 * (std::fabs(*gate * gate[cols]) + 1e-6));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
