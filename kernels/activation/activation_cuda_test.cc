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
        auto gate_up = rounded_to_bf16(random_floats(random, rows * 2 * cols, 3));
        gate_up[0] = 100, gate_up[1] = -100, gate_up[2] = 20000, gate_up[3] = -20000;
        std::vector<float> expected(rows * cols);
        cpu->activation({gate_up.data(), expected.data(), rows, cols, kind});
        const DeviceArray<Bf16> in(to_bf16(gate_up)), out(expected.size());
        activation_cuda({in.data(), out.data(), rows, cols, kind}, nullptr);
        // One rounding to bf16 is 2^-8 at most, and the largest element outweighs the others.
        CHECK(relative_error(to_floats(out.host()), expected) < 5e-3);
      }
    }
  }
}

}  // namespace baton
