// The one source of chance of a simulated run: the same seed gives the same run.
#pragma once

#include <cstdint>
#include <random>

namespace baton::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // In [0, n). REQUIRES: n > 0. Not std::uniform_int_distribution: its results differ between
  // libraries.
  uint64_t below(uint64_t n) { return engine_() % n; }
  int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < p; }
  uint64_t next() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace baton::sim
