#include "scheduler/prefill_rate.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace baton {
namespace {

constexpr int64_t kFirstContext = 1024;
constexpr double kHalfLifeTokens = 1024;
// A step that took longer than so many times what was expected was held up by something else (the
// process was stopped, a core was taken away): it counts as so much, no more.
constexpr double kOutlier = 4;

}  // namespace

size_t PrefillRate::place_of(int64_t context) {
  constexpr size_t kLast = std::tuple_size_v<decltype(by_context_)> - 1;
  const auto units = static_cast<uint64_t>(std::max<int64_t>(0, context) / kFirstContext);
  return std::min<size_t>(static_cast<size_t>(std::bit_width(units)), kLast);
}

void PrefillRate::measured(int64_t tokens, int64_t context, int64_t us) {
  if (tokens <= 0 || us <= 0) return;
  Average& average = by_context_[place_of(context)];
  const auto weight = static_cast<double>(tokens);
  auto sample = static_cast<double>(us);
  if (average.tokens > 0) {
    sample = std::min(sample, kOutlier * weight * average.us / average.tokens);
  }
  const double fade = std::exp2(-weight / kHalfLifeTokens);
  average.tokens = fade * average.tokens + weight;
  average.us = fade * average.us + sample;
}

double PrefillRate::us_per_token(int32_t position) const {
  const auto price = [](const Average& average) { return average.us / average.tokens; };
  const size_t place = place_of(position);
  // The nearest shorter context that is known; per doubling a token's price at most doubles.
  for (size_t known = place + 1; known-- > 0;) {
    if (by_context_[known].tokens == 0) continue;
    return std::ldexp(price(by_context_[known]), static_cast<int>(place - known));
  }
  for (size_t known = place + 1; known < by_context_.size(); ++known) {
    if (by_context_[known].tokens > 0) return price(by_context_[known]);
  }
  return 0;
}

}  // namespace baton
