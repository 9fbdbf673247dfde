// What the kernel tests and benchmarks share: seeded random tensors in every format, and the ISAs
// of this machine.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"

namespace baton {

inline constexpr Dtype kAllDtypes[] = {Dtype::kF32,  Dtype::kF16,  Dtype::kBF16, Dtype::kQ4_0,
                                       Dtype::kQ4_1, Dtype::kQ5_0, Dtype::kQ5_1, Dtype::kQ8_0,
                                       Dtype::kQ4_K, Dtype::kQ5_K, Dtype::kQ6_K};

inline std::vector<std::string> isas_of_this_cpu() {
  std::vector<std::string> isas;
  for (const char* isa : {"avx512_vnni", "avx2", "portable"}) {
    try {
      make_cpu_backend(1, isa);
      isas.push_back(isa);
    } catch (const ConfigError&) {
      // This CPU lacks it.
    }
  }
  return isas;
}

inline std::vector<float> random_floats(std::mt19937& random, int64_t count, float spread = 1) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A tensor in a file's format: random bits in the blocks, sane scales.
struct RandomTensor {
  RandomTensor(std::mt19937& random, Dtype dtype, int64_t rows, int64_t cols);
  TensorView view() const { return {dtype, rows, cols, bytes.data() + kMisalignment}; }

  // Files do not align tensors to anything that a kernel may rely on.
  static constexpr int64_t kMisalignment = 2;
  Dtype dtype;
  int64_t rows, cols;
  std::vector<uint8_t> bytes;
};

}  // namespace baton
