// How fast this worker's queue of prompts really goes down: prompt tokens done over the time in
// which there were any, whatever it was spent on (computing, decodes beside it, waiting for pages).
// Routers predict with it how long a new prompt waits. Owned by the worker's loop.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace baton {

class DrainRate {
 public:
  // Once a round of the loop: the tokens that wait now, and those done (computed or found in the
  // prefix cache) since the start.
  void look(int64_t now_us, int64_t queued_tokens, int64_t tokens_done) {
    const auto passed_us = static_cast<double>(now_us - looked_us_);
    const double kept = std::exp2(-passed_us / kHalfLifeUs);
    busy_us_ *= kept;
    tokens_ *= kept;
    if (queued_) {
      busy_us_ += passed_us;
      tokens_ += static_cast<double>(tokens_done - tokens_done_);
    }
    queued_ = queued_tokens > 0;
    tokens_done_ = tokens_done;
    looked_us_ = now_us;
  }

  // 0: too little has been seen of late. A queue that stands still has a rate of 1.
  double tokens_per_s() const {
    return busy_us_ < kTrustedUs ? 0 : std::max(1.0, 1e6 * tokens_ / busy_us_);
  }

 private:
  static constexpr double kHalfLifeUs = 2e6;
  static constexpr double kTrustedUs = 50e3;

  bool queued_ = false;  // when looked at last
  int64_t looked_us_ = 0;
  int64_t tokens_done_ = 0;
  double busy_us_ = 0;
  double tokens_ = 0;
};

}  // namespace baton
