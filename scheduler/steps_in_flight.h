// The steps that have been given out and have not completed: what they computed for whom, and the
// pages that must not be reused before their end. Inside scheduler/ only; same thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "scheduler/page_ledger.h"
#include "scheduler/scheduler.h"

namespace baton {

struct SampleRecord {
  uint64_t branch = 0;
  int32_t choice = 0;
  int32_t slot = 0;
};

struct ChunkRecord {
  SeqId seq = 0;
  int32_t end = 0;  // position after its last token
  bool ends_prompt = false;
  std::vector<uint64_t> branches;     // whose pages it writes: one, or all choices of a prompt
  std::vector<SampleRecord> samples;  // in the order of Chunk::sample_slots
};

struct StepRecord {
  uint64_t step = 0;
  int64_t prefill_tokens = 0;     // of prompts
  int64_t prefill_positions = 0;  // the sum of theirs
  std::vector<ChunkRecord> chunks;
  std::vector<PageRef> held;  // given up by their branch while this step may touch them
};

class StepsInFlight {
 public:
  bool empty() const { return steps_.empty(); }
  int32_t size() const { return static_cast<int32_t>(steps_.size()); }
  void push(StepRecord step) { steps_.push_back(std::move(step)); }
  StepRecord pop();  // the oldest

  // Drops a page now, or when the newest step in flight has completed.
  void drop_after(PageRef page);
  void drop_after(GroupPages pages);
  // Pages of the group that wait for a step's end.
  int32_t held(int32_t group) const;

 private:
  std::deque<StepRecord> steps_;
};

}  // namespace baton
