// The attempts that routers have given to this worker, by the time at which each must be over.
// Used by the worker's core; same thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/messages.h"

namespace baton {

class Attempts {
 public:
  static constexpr int64_t kNoDeadline = INT64_MAX;

  // OPEN and PREFILL of one attempt may both come to a worker of both roles: it is held once.
  void add(const AttemptId& id, int64_t deadline_us) {
    if (deadlines_.emplace(id, deadline_us).second) by_time_.emplace(deadline_us, id);
  }
  void remove(const AttemptId& id) {
    const auto it = deadlines_.find(id);
    if (it == deadlines_.end()) return;
    by_time_.erase({it->second, id});
    deadlines_.erase(it);
  }

  // Takes out those whose deadline has come.
  std::vector<AttemptId> take_expired(int64_t now_us) {
    std::vector<AttemptId> expired;
    while (!by_time_.empty() && by_time_.begin()->first <= now_us) {
      expired.push_back(by_time_.begin()->second);
      remove(expired.back());
    }
    return expired;
  }
  std::vector<AttemptId> take_all() { return take_expired(kNoDeadline); }

  // Attempts end by themselves without a word to this class. Asks which have, but only when there
  // are twice as many as were left the last time: constant work for each that is added.
  template <typename Ended>
  void forget_ended(Ended ended) {
    if (deadlines_.size() < sweep_at_) return;
    std::erase_if(by_time_, [&](const auto& entry) { return ended(entry.second); });
    std::erase_if(deadlines_, [&](const auto& entry) {
      return !by_time_.contains({entry.second, entry.first});
    });
    sweep_at_ = std::max(kSweepMin, 2 * deadlines_.size());
  }
  size_t size() const { return deadlines_.size(); }

 private:
  static constexpr size_t kSweepMin = 256;

  std::map<AttemptId, int64_t> deadlines_;  // us
  std::set<std::pair<int64_t, AttemptId>> by_time_;
  size_t sweep_at_ = kSweepMin;
};

}  // namespace baton
