// Puts the next step together: decodes first, then prefill chunks of admitted and newly admitted
// prompts within the token budget.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/push_plan.h"
#include "scheduler/scheduler_impl.h"

namespace baton {
namespace {

constexpr int32_t kChunkMultiple = 16;  // what the kernels like; chunks cut by time keep to it
// Given out at most while nobody knows how long a token takes.
constexpr int32_t kUnmeasuredTokens = 32;

}  // namespace

std::optional<PreparedStep> Scheduler::Impl::next_step() {
  if (in_flight_.size() > config_.steps_ahead) return std::nullopt;
  Building building;
  building.budget = config_.step_tokens;
  stalled_ = false;
  build_decodes(building);
  build_prefills(building);
  StepInput& input = building.prepared.input;
  if (input.chunks.empty()) return std::nullopt;
  input.step = building.record.step = next_step_++;
  input.closed_slots = slots_.take_closed();
  in_flight_.push(std::move(building.record));
  return std::move(building.prepared);
}

void Scheduler::Impl::build_decodes(Building& building) {
  const std::vector<Branch*> decoding(branches(Stage::kDecoding).begin(),
                                      branches(Stage::kDecoding).end());
  for (Branch* branch : decoding) {
    if (building.budget == 0) return;
    if (branch->stage != Stage::kDecoding) continue;  // preempted for one before it
    // Steps in flight may sample its last token already.
    if (branch->next_pos >= branch->request->last_position) continue;
    if (grow(building, *branch)) add_decode_chunk(building, *branch);
  }
  const bool mixed = !building.record.chunks.empty();
  if (mixed && config_.mixed_tokens > 0)
    building.budget = std::min(building.budget, config_.mixed_tokens);
}

// A prompt goes before another by its place, whether it has begun or not; but nobody is admitted
// past the first that waits, and nobody at all while a preempted choice waits.
void Scheduler::Impl::build_prefills(Building& building) {
  bool blocked = stalled_;
  while (!blocked && building.budget > 0 && !branches(Stage::kPreempted).empty()) {
    blocked = !admit(**branches(Stage::kPreempted).begin());
  }
  blocked = blocked || !branches(Stage::kPreempted).empty();
  const std::vector<Branch*> begun(branches(Stage::kPrefilling).begin(),
                                   branches(Stage::kPrefilling).end());
  size_t next = 0;
  while (building.budget > 0) {
    const BranchSet& queue = branches(Stage::kQueued);
    Branch* first = blocked || queue.empty() ? nullptr : *queue.begin();
    const bool admits =
        next == begun.size() || (first != nullptr && BranchOrder()(first, begun[next]));
    Branch* branch = admits ? first : begun[next++];
    if (branch == nullptr || tokens_in_time(building, branch->next_pos) == 0) return;
    if (admits && !admit(*branch)) {
      blocked = true;
    } else {
      add_prefill_chunk(building, *branch);
    }
  }
}

// How many tokens of a prompt from `first_pos` on the rest of the step's time has room for. A step
// that has none yet takes some however long they take: every prompt gets on.
int32_t Scheduler::Impl::tokens_in_time(const Building& building, int32_t first_pos) const {
  if (config_.chunk_ms == 0) return INT32_MAX;
  const int64_t begun = building.record.prefill_tokens;
  const double us_per_token = prefill_rate_.us_per_token(first_pos);
  if (us_per_token == 0) {
    return static_cast<int32_t>(std::max<int64_t>(0, kUnmeasuredTokens - begun));
  }
  const double left_us = static_cast<double>(config_.chunk_ms) * 1000 - building.prefill_us;
  const auto fitting =
      static_cast<int32_t>(std::clamp<double>(left_us / us_per_token, 0, config_.step_tokens));
  const int32_t whole = fitting / kChunkMultiple * kChunkMultiple;
  return begun > 0 ? whole : std::max(whole, kChunkMultiple);
}

Chunk Scheduler::Impl::base_chunk(const Branch& branch, int32_t first_pos, int32_t end) const {
  Chunk chunk;
  chunk.seq = branch.request->seq;
  chunk.first_pos = first_pos;
  chunk.block_tables = branch.pages.block_tables(end);
  return chunk;
}

void Scheduler::Impl::open_slots(Building& building, Branch& branch) {
  const Request& request = *branch.request;
  for (Choice& choice : branch.choices) {
    if (choice.slot >= 0) continue;
    choice.slot = slots_.open();
    building.prepared.input.opened_slots.push_back(
        {choice.slot, request.spec, choice.number, request.prompt_len, branch.tokens});
  }
}

void Scheduler::Impl::add_decode_chunk(Building& building, Branch& branch) {
  const int32_t position = branch.next_pos;
  open_slots(building, branch);
  Chunk chunk = base_chunk(branch, position, position + 1);
  if (position < static_cast<int32_t>(branch.tokens.size())) {
    chunk.tokens = {branch.tokens[static_cast<size_t>(position)]};
  } else {
    chunk.use_last = true;
  }
  const Choice& choice = branch.choices.front();
  chunk.sample_slots = {choice.slot};
  building.prepared.input.chunks.push_back(std::move(chunk));

  ChunkRecord record;
  record.seq = branch.request->seq;
  record.end = position + 1;
  record.branches = {branch.id};
  record.samples = {{branch.id, choice.number, choice.slot}};
  building.record.chunks.push_back(std::move(record));
  ++branch.steps_in_flight;
  ++branch.next_pos;
  --building.budget;
}

void Scheduler::Impl::add_prefill_chunk(Building& building, Branch& branch) {
  Request& request = *branch.request;
  const int32_t first_pos = branch.next_pos;
  const auto known = static_cast<int32_t>(branch.tokens.size());
  const bool scores =
      request.spec.prompt_logprobs >= 0 && !request.prompt_done && first_pos < request.prompt_len;
  const int32_t end_max = scores ? request.prompt_len : known;
  const int32_t count = std::min({end_max - first_pos, config_.chunk_tokens, building.budget,
                                  tokens_in_time(building, first_pos)});
  if (count == 0) return;  // all given out; the last step has not completed
  const int32_t end = first_pos + count;
  const bool ends = end == known;

  start_prompt(building, branch);
  Chunk chunk = base_chunk(branch, first_pos, end);
  chunk.tokens.assign(branch.tokens.begin() + first_pos, branch.tokens.begin() + end);
  if (scores) {
    chunk.prompt_logprobs = request.spec.prompt_logprobs;
    if (end < request.prompt_len) chunk.next_token = branch.tokens[static_cast<size_t>(end)];
  }
  if (request.push) {
    std::vector<PushPage> pushes =
        pages_to_push(layout_, *request.push, branch.pages, first_pos, end, ends);
    std::vector<PushPage>& all = building.prepared.input.pushes;
    all.insert(all.end(), pushes.begin(), pushes.end());
    if (ends) building.prepared.pushed_whole.push_back(request.seq);
  }
  branch.next_pos = end;
  building.budget -= count;
  building.prefill_us += count * prefill_rate_.us_per_token(first_pos);
  building.record.prefill_tokens += count;
  building.record.prefill_positions += int64_t{count} * (first_pos + count / 2);
  fair_order_.serve(request.place);
  record_prefill(building, branch, std::move(chunk), ends);
}

// Records the chunk; one that ends the prompt samples the first token of each choice.
void Scheduler::Impl::record_prefill(Building& building, Branch& branch, Chunk chunk, bool ends) {
  Request& request = *branch.request;
  ChunkRecord record;
  record.seq = request.seq;
  record.end = branch.next_pos;
  record.ends_prompt = ends;
  const bool samples = ends && record.end <= request.last_position;
  if (samples) open_slots(building, branch);
  for (const Choice& choice : branch.choices) {
    if (samples) chunk.sample_slots.push_back(choice.slot);
  }
  const bool splits = samples && !request.push;
  const std::vector<Branch*> owners =
      splits ? split_into_choices(branch) : std::vector<Branch*>{&branch};
  for (Branch* owner : owners) {
    ++owner->steps_in_flight;
    record.branches.push_back(owner->id);
    for (const Choice& choice : owner->choices) {
      if (samples) record.samples.push_back({owner->id, choice.number, choice.slot});
    }
  }
  building.prepared.input.chunks.push_back(std::move(chunk));
  building.record.chunks.push_back(std::move(record));
}

void Scheduler::Impl::start_prompt(Building& building, Branch& branch) {
  Request& request = *branch.request;
  if (request.started) return;
  request.started = true;
  PromptStarted started;
  started.seq = request.seq;
  started.cached_tokens = request.cached_tokens;
  if (request.push) {
    started.ready =
        pages_to_push(layout_, *request.push, branch.pages, 0, request.cached_tokens, false);
  }
  building.prepared.started.push_back(std::move(started));
}

// The prompt becomes its first choice; the others share its pages. All may write the next position,
// so all but the first copy the page of the last token when they get there.
std::vector<Branch*> Scheduler::Impl::split_into_choices(Branch& prompt) {
  std::vector<Branch*> choices = {&prompt};
  move_to(prompt, Stage::kDecoding);
  for (size_t i = 1; i < prompt.choices.size(); ++i) {
    Branch& branch = new_branch(*prompt.request, Stage::kDecoding);
    branch.choices = {prompt.choices[i]};
    branch.tokens = prompt.tokens;
    branch.pages = prompt.pages.share();
    branch.next_pos = prompt.next_pos;
    branch.computed = prompt.computed;
    branch.published = prompt.published;
    branch.prefix = prompt.prefix;
    branch.shares_tail = true;
    choices.push_back(&branch);
  }
  prompt.choices.resize(1);
  return choices;
}

}  // namespace baton
