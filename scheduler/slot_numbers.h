// Numbers for the engine's sampler slots. A number given back is told to the engine in the next
// step and may be handed out again for the same one: the engine closes slots before it opens any.
// Inside scheduler/ only; same thread.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace baton {

class SlotNumbers {
 public:
  int32_t open() {
    if (free_.empty()) return next_++;
    const int32_t slot = free_.top();
    free_.pop();
    return slot;
  }
  void close(int32_t slot) {
    free_.push(slot);
    closed_.push_back(slot);
  }
  // What the engine has not been told yet; for StepInput::closed_slots.
  std::vector<int32_t> take_closed() { return std::exchange(closed_, {}); }

 private:
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> free_;  // lowest first
  std::vector<int32_t> closed_;
  int32_t next_ = 0;
};

}  // namespace baton
