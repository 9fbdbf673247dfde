// One request, handoff or grant as /debug shows it. Plain data.
#pragma once

#include <cstdint>
#include <string>

#include "base/messages.h"

namespace baton {

struct HandoffView {
  AttemptId id;
  std::string state;  // as in docs/protocol.md
  std::string peer;   // worker id of the other side; empty: none (yet)
  uint64_t slot_gen = 0;
  int64_t tokens = 0;  // of the prompt, where known
  int64_t pages = 0;   // held for it, over all kv_groups
  int64_t age_us = 0;  // in this state
};

}  // namespace baton
