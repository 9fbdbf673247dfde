#include "router/ttft_split.h"

#include <algorithm>

namespace baton {

TtftSplit split_ttft(int64_t received_us, const FirstTokenTimes& times, int64_t first_token_us) {
  const int64_t end_us = std::max(first_token_us, received_us);
  int64_t at_us = received_us;
  const auto until = [&](int64_t us) {
    const int64_t begin_us = at_us;
    if (us != 0) at_us = std::clamp(us, at_us, end_us);
    return static_cast<double>(at_us - begin_us) * 1e-6;
  };
  TtftSplit split;
  split.queue_s = until(times.sent_us);
  split.reserve_s = until(times.placed_us);
  split.prefill_s = until(times.computed_us);
  (times.landed ? split.transfer_s : split.first_token_s) = until(end_us);
  return split;
}

}  // namespace baton
