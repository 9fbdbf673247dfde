// The measurement at attach: how much is moved through scratch memory that is no page, and how it
// is reckoned.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kvtransfer/transport.h"

namespace baton {

inline constexpr int64_t kProbeSliceBytes = 256 << 10;  // a layer's slice of an 8B model
inline constexpr int32_t kProbeSlices = 32;             // 8 MiB in all
inline constexpr int32_t kProbePings = 5;               // the fastest counts

class Stopwatch {
 public:
  double elapsed_us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline double gbps_of(int64_t bytes, double elapsed_us) {
  return static_cast<double>(bytes) / std::max(elapsed_us, 1e-3) / 1e3;
}

}  // namespace baton
