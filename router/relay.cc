#include "router/relay.h"

#include <utility>

namespace baton {

ChoiceRelay::Verdict ChoiceRelay::offer(TokenEvent event, std::vector<TokenEvent>& released) {
  if (event.position < next_position_) return Verdict::kRepeat;
  if (event.position > next_position_) {
    if (held_.size() >= kHeldMax) return Verdict::kOverflow;
    const int32_t position = event.position;
    return held_.try_emplace(position, std::move(event)).second ? Verdict::kHeld : Verdict::kRepeat;
  }
  released.push_back(std::move(event));
  ++next_position_;
  for (auto it = held_.begin(); it != held_.end() && it->first == next_position_;) {
    released.push_back(std::move(it->second));
    it = held_.erase(it);
    ++next_position_;
  }
  return Verdict::kReleased;
}

}  // namespace baton
