// What a worker is, for /info, and holds at one moment, for /debug and /metrics. Plain data: the
// loop makes it, any thread reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/messages.h"
#include "worker/handoff_view.h"

namespace baton {

// Of the oldest page in a state that waits for a peer; 0: there is none.
struct PageAges {
  int64_t granted_us = 0;
  int64_t quarantined_us = 0;
};

struct WorkerView {
  std::vector<PageCounts> pages;  // per kv_group
  PageAges ages;
  std::vector<HandoffView> handoffs;  // that we push, as P
  std::vector<HandoffView> grants;    // that we have given, as D
  std::vector<HandoffView> attempts;  // that we decode, or are to decode, as D
};

// What a worker is, for /info: fixed for its life.
struct WorkerInfo {
  struct Group {
    int32_t pages = 0;
    int32_t page_tokens = 0;
  };
  PeerInfo peer;
  std::string numerics_id;
  std::string device;
  int64_t weight_bytes = 0;
  std::vector<Group> groups;  // per kv_group
};

std::string info_json(const WorkerInfo& info);
// Objects of /debug/pages and /debug/handoffs.
std::string pages_json(const WorkerView& view);
std::string handoffs_json(const WorkerView& view);

}  // namespace baton
