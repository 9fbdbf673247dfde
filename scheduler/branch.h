// What the scheduler knows of a request and of its branches. Plain data, inside scheduler/ only;
// same thread. A branch is one line of tokens with its pages: first the prompt, which all choices
// share; from the step on that samples the first tokens, one branch a choice.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "base/messages.h"
#include "scheduler/fair_order.h"
#include "scheduler/page_table.h"
#include "scheduler/scheduler.h"

namespace baton {

enum class Stage : uint8_t { kQueued, kPrefilling, kDecoding, kPreempted };
inline constexpr size_t kStages = 4;

struct Choice {
  int32_t number = 0;  // absolute: spec.first_choice + i
  int32_t slot = -1;   // of its sampler state in the engine; -1 = not open
};

struct Request;

struct Branch {
  Branch(Request& owner, uint64_t branch_id, const KvLayout& layout)
      : request(&owner), id(branch_id), pages(layout), prefix(layout.groups.size()) {}

  Request* request;
  uint64_t id;
  Stage stage = Stage::kQueued;
  std::vector<Choice> choices;  // that have not ended; exactly one when decoding
  std::vector<TokenId> tokens;  // known ones
  PageTable pages;              // empty while queued or preempted
  int32_t next_pos = 0;         // positions before it are in pages or given out to steps
  int32_t computed = 0;         // positions before it are in pages: their steps have completed
  int32_t published = 0;        // positions before it are known to the prefix cache
  int32_t steps_in_flight = 0;  // steps given out that have a chunk of it
  std::vector<PrefixPosition> prefix;  // per group: how far the prefix cache has its pages
  // A sibling may own the page of its last token: it is copied before the first write to it.
  bool shares_tail = false;
};

// All of one attempt. Owns its branches; gone when its last choice has ended.
struct Request {
  SeqId seq = 0;
  AttemptId id;
  SamplingSpec spec;
  int32_t prompt_len = 0;
  int32_t last_position = 0;  // no token is sampled for a position after this one
  std::optional<PushTarget> push;
  int64_t arrived_us = 0;
  Place place;  // among the requests of all routers
  int32_t cached_tokens = 0;
  bool prefix_counted = false;  // in the prefix cache's metrics
  bool started = false;         // PromptStarted has been told
  bool prompt_done = false;     // PromptDone has been told
  PromptLogprobs logprobs;      // filled by position
  std::vector<std::unique_ptr<Branch>> branches;

  Branch* find_branch(uint64_t branch_id) const {
    for (const auto& branch : branches) {
      if (branch->id == branch_id) return branch.get();
    }
    return nullptr;
  }
};

// Fair between routers and by priority, then in the order of arrival, then by choice.
struct BranchOrder {
  static std::tuple<int64_t, SeqId, uint64_t> key(const Branch& branch) {
    return {branch.request->place.order, branch.request->seq, branch.id};
  }
  bool operator()(const Branch* a, const Branch* b) const { return key(*a) < key(*b); }
};
using BranchSet = std::set<Branch*, BranchOrder>;

}  // namespace baton
