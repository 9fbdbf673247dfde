// The scheduler's front: what the worker's loop sees, and the numbers it reports.
#include "scheduler/scheduler.h"

#include <utility>

#include "scheduler/scheduler_impl.h"

namespace baton {

Scheduler::Scheduler(const SchedulerConfig& config, const KvLayout& layout, int32_t context_len,
                     PageLedger& ledger, PrefixCache& prefix_cache, const Clock& clock)
    : impl_(std::make_unique<Impl>(config, layout, context_len, ledger, prefix_cache, clock)) {}

Scheduler::~Scheduler() = default;

Result<SeqId> Scheduler::add_prompt(SequenceSpec sequence, std::optional<PushTarget> push) {
  return impl_->add_prompt(std::move(sequence), std::move(push));
}

SeqId Scheduler::add_landed(SequenceSpec sequence, LandedPages pages,
                            const std::vector<TokenEvent>& first_tokens) {
  return impl_->add_landed(std::move(sequence), std::move(pages), first_tokens);
}

Status Scheduler::check(const SamplingSpec& spec, int32_t prompt_len, size_t tokens,
                        bool pushed) const {
  return impl_->check(spec, prompt_len, tokens, pushed);
}

GroupPages Scheduler::cancel(SeqId seq, int32_t choice) {
  return impl_->cancel(seq, choice);
}

std::optional<PreparedStep> Scheduler::next_step() {
  return impl_->next_step();
}

std::vector<SeqId> Scheduler::take_ended() {
  return impl_->take_ended();
}

StepResult Scheduler::complete(const StepOutput& output) {
  return impl_->complete(output);
}

bool Scheduler::preempted_waiting() const {
  return impl_->stalled() || !impl_->branches(Stage::kPreempted).empty();
}

int64_t Scheduler::preemptions() const {
  return impl_->preemptions();
}

int32_t Scheduler::running() const {
  size_t choices = 0;
  for (Stage stage : {Stage::kPrefilling, Stage::kDecoding}) {
    for (const Branch* branch : impl_->branches(stage)) choices += branch->choices.size();
  }
  return static_cast<int32_t>(choices);
}

int32_t Scheduler::waiting() const {
  return static_cast<int32_t>(impl_->branches(Stage::kQueued).size() +
                              impl_->branches(Stage::kPreempted).size());
}

int64_t Scheduler::queued_tokens() const {
  int64_t tokens = 0;
  for (Stage stage : {Stage::kQueued, Stage::kPrefilling, Stage::kPreempted}) {
    for (const Branch* branch : impl_->branches(stage)) {
      tokens += static_cast<int64_t>(branch->tokens.size()) - branch->next_pos;
    }
  }
  return tokens;
}

int32_t Scheduler::growth_pages_wanted(int32_t /*group*/) const {
  return impl_->local_running();
}

int32_t Scheduler::head_pages_wanted(int32_t group) const {
  const BranchSet& queue = impl_->branches(Stage::kQueued);
  return queue.empty() ? 0 : impl_->pages_missing(**queue.begin(), group, 0);
}

int64_t Scheduler::oldest_wait_us() const {
  int64_t oldest = 0;
  const int64_t now = impl_->clock().now_us();
  for (const Branch* branch : impl_->branches(Stage::kQueued)) {
    oldest = std::max(oldest, now - branch->request->arrived_us);
  }
  return oldest;
}

const char* Scheduler::stage(SeqId seq) const {
  static constexpr const char* kNames[kStages] = {"queued", "prefilling", "decoding", "preempted"};
  const Request* request = impl_->find(seq);
  if (request == nullptr) return "";
  Stage furthest = Stage::kQueued;
  for (const auto& branch : request->branches) {
    const bool decoding = branch->stage == Stage::kDecoding;
    if (decoding) return kNames[static_cast<size_t>(Stage::kDecoding)];
    furthest = std::max(furthest, branch->stage);
  }
  return kNames[static_cast<size_t>(furthest)];
}

}  // namespace baton
