// The scheduler's state and its parts, one file each: admission.cc (add, check, admit),
// step_builder.cc (next_step), preemption.cc (growth, preempt), completion.cc (complete), ending.cc
// (cancel). Same thread.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "scheduler/branch.h"
#include "scheduler/fair_order.h"
#include "scheduler/prefill_rate.h"
#include "scheduler/scheduler.h"
#include "scheduler/slot_numbers.h"
#include "scheduler/steps_in_flight.h"

namespace baton {

class SampledReader;

class Scheduler::Impl {
 public:
  Impl(const SchedulerConfig& config, const KvLayout& layout, int32_t context_len,
       PageLedger& ledger, PrefixCache& prefix_cache, const Clock& clock)
      : config_(config),
        layout_(layout),
        context_len_(context_len),
        ledger_(ledger),
        prefix_cache_(prefix_cache),
        clock_(clock),
        fair_order_(config.priority_tokens) {}

  // admission.cc
  Result<SeqId> add_prompt(SequenceSpec sequence, std::optional<PushTarget> push);
  SeqId add_landed(SequenceSpec sequence, LandedPages pages,
                   const std::vector<TokenEvent>& first_tokens);
  Status check(const SamplingSpec& spec, int32_t prompt_len, size_t tokens, bool pushed) const;
  int32_t pages_missing(const Branch& branch, int32_t group, int32_t cached_tokens) const;
  int32_t local_running() const;  // choices that decode here, or will

  // step_builder.cc
  std::optional<PreparedStep> next_step();

  // completion.cc
  StepResult complete(const StepOutput& output);

  // ending.cc
  std::vector<SeqId> take_ended() { return std::exchange(ended_, {}); }
  GroupPages cancel(SeqId seq, int32_t choice);

  const BranchSet& branches(Stage stage) const { return by_stage_[static_cast<size_t>(stage)]; }
  bool stalled() const { return stalled_; }
  int64_t preemptions() const { return preemptions_; }
  const Request* find(SeqId seq) const {
    const auto found = requests_.find(seq);
    return found == requests_.end() ? nullptr : found->second.get();
  }
  const KvLayout& layout() const { return layout_; }
  const Clock& clock() const { return clock_; }

 private:
  // A step while it is put together.
  struct Building {
    PreparedStep prepared;
    StepRecord record;
    int32_t budget = 0;     // tokens left
    double prefill_us = 0;  // what the prompts in it will take
  };

  // admission.cc
  int32_t last_position(const SamplingSpec& spec, int32_t prompt_len) const;
  Request& new_request(SequenceSpec& sequence);
  Branch& new_branch(Request& request, Stage stage);
  void move_to(Branch& branch, Stage stage);
  bool admit(Branch& branch);
  bool take_prompt_pages(Branch& branch, PrefixHit hit);

  // step_builder.cc
  void build_decodes(Building& building);
  void build_prefills(Building& building);
  Chunk base_chunk(const Branch& branch, int32_t first_pos, int32_t end) const;
  void open_slots(Building& building, Branch& branch);
  void add_decode_chunk(Building& building, Branch& branch);
  int32_t tokens_in_time(const Building& building, int32_t first_pos) const;
  void add_prefill_chunk(Building& building, Branch& branch);
  void record_prefill(Building& building, Branch& branch, Chunk chunk, bool ends);
  void start_prompt(Building& building, Branch& branch);
  std::vector<Branch*> split_into_choices(Branch& prompt);

  // preemption.cc
  bool needs_page(const Branch& branch, int32_t group) const;
  bool take_growth(Building& building, Branch& branch);
  bool grow(Building& building, Branch& branch);
  bool waits_for_held_pages(const Branch& branch) const;
  Branch* victim_for(const Branch& branch) const;
  void preempt(Branch& branch);

  // completion.cc
  void complete_chunk(const ChunkRecord& chunk, SampledReader& reader, StepResult& result);
  void accept_sample(Branch& branch, const SampleRecord& record, const Sampled* sampled,
                     std::vector<TokenEvent>& events);
  void advance(Branch& branch, int32_t end);
  void publish(Branch& branch);
  void accept_logprobs(const StepOutput& output);
  void finish_prompt(Request& request, const std::vector<TokenEvent>& first_tokens,
                     StepResult& result);
  void end_finished(Request& request, bool all, const std::vector<TokenEvent>& events);

  // ending.cc
  void close_slots(Branch& branch);
  bool end_choice(Request& request, int32_t number);
  void remove_branch(Request& request, Branch& branch);
  void erase(Request& request);

  const SchedulerConfig config_;
  const KvLayout& layout_;
  const int32_t context_len_;
  PageLedger& ledger_;
  PrefixCache& prefix_cache_;
  const Clock& clock_;

  std::unordered_map<SeqId, std::unique_ptr<Request>> requests_;
  BranchSet by_stage_[kStages];
  StepsInFlight in_flight_;
  SlotNumbers slots_;
  FairOrder fair_order_;
  PrefillRate prefill_rate_;
  std::vector<SeqId> ended_;  // since the last step completed
  int64_t preemptions_ = 0;
  bool stalled_ = false;  // a running choice waited for a page when the last step was built
  uint64_t next_seq_ = 1;
  uint64_t next_branch_ = 1;
  uint64_t next_step_ = 1;
};

}  // namespace baton
