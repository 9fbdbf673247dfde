// Places in a queue that several routers fill: start-time fair queueing (Goyal, Vin, Cheng,
// "Start-time Fair Queuing", SIGCOMM 1996). Each router gets the same share of the work while it
// has any waiting; one that floods waits behind itself, one that was away saves nothing up. A
// place never changes once given, so an order by place is total and nobody in it starves, whatever
// the priorities. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "base/messages.h"

namespace baton {

struct Place {
  int64_t start = 0;  // virtual time at which its service begins
  int64_t order = 0;  // lower ones go first, equal ones in the order in which they came
};

class FairOrder {
 public:
  // `priority_tokens`: what a step of priority is worth, in the unit of place()'s cost.
  explicit FairOrder(int32_t priority_tokens) : priority_tokens_(priority_tokens) {}

  // The place of new work of `cost` tokens, at least 1.
  Place place(Epoch router, int32_t priority, int64_t cost) {
    int64_t& next = next_[router];
    const int64_t start = std::max(next, served_);
    next = start + cost;
    return {start, start + priority * priority_tokens_};
  }

  // Work with this place is being served.
  void serve(const Place& place) { served_ = std::max(served_, place.start); }

  // Nobody waits: what each router had before is of no account. Also forgets the routers that are
  // gone.
  void reset() {
    for (const auto& [router, next] : next_) served_ = std::max(served_, next);
    next_.clear();
  }

 private:
  const int64_t priority_tokens_;
  int64_t served_ = 0;                       // virtual time: where the work being served began
  std::unordered_map<Epoch, int64_t> next_;  // where a router's last place ends
};

}  // namespace baton
