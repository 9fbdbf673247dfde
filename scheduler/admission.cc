// How sequences enter: the checks at the door, the queue, and taking all pages of a prompt at once.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "scheduler/push_plan.h"
#include "scheduler/scheduler_impl.h"

namespace baton {
namespace {

std::string number(int64_t value) {
  return std::to_string(value);
}

}  // namespace

int32_t Scheduler::Impl::last_position(const SamplingSpec& spec, int32_t prompt_len) const {
  const int64_t end = int64_t{prompt_len} + spec.max_tokens;
  return static_cast<int32_t>(std::min<int64_t>(end, context_len_)) - 1;
}

Status Scheduler::Impl::check(const SamplingSpec& spec, int32_t prompt_len, size_t tokens,
                              bool pushed) const {
  const auto known = static_cast<int32_t>(tokens);
  if (prompt_len < 1 || known < prompt_len) {
    return invalid_argument("tokens: got " + number(known) + " with prompt_len " +
                            number(prompt_len) + ", want at least one and all of the prompt");
  }
  if (spec.n < 1 || (!pushed && spec.n > config_.running_max)) {
    return invalid_argument("n: got " + number(spec.n) + ", want 1 to " +
                            number(config_.running_max) + " (scheduler.running_max)");
  }
  const int32_t last = last_position(spec, prompt_len);
  const bool samples = spec.max_tokens > 0;
  if (known > (samples ? last : std::min(prompt_len, context_len_))) {
    return invalid_argument("tokens: got " + number(known) + ", but the sequence ends at " +
                            number(last + 1) + " (max_tokens " + number(spec.max_tokens) +
                            ", context " + number(context_len_) + ")");
  }
  const int32_t written = pushed ? known : std::max(known, last);
  for (int32_t g = 0; g < ledger_.num_groups(); ++g) {
    const int64_t pool = ledger_.counts(g).total;
    const int32_t pages = layout_.groups[static_cast<size_t>(g)].pages_for(written);
    if (pages > pool) {
      return invalid_argument("sequence of up to " + number(written) + " tokens: needs " +
                              number(pages) + " pages of kv_group " + number(g) +
                              ", the pool has " + number(pool));
    }
  }
  return {};
}

Request& Scheduler::Impl::new_request(SequenceSpec& sequence) {
  auto request = std::make_unique<Request>();
  request->seq = next_seq_++;
  request->id = sequence.id;
  request->prompt_len = sequence.prompt_len;
  request->last_position = last_position(sequence.spec, sequence.prompt_len);
  request->spec = std::move(sequence.spec);
  request->arrived_us = clock_.now_us();
  if (branches(Stage::kQueued).empty() && branches(Stage::kPrefilling).empty()) {
    fair_order_.reset();
  }
  request->place = fair_order_.place(request->id.id.router_epoch, request->spec.priority,
                                     std::ssize(sequence.tokens));
  Request& added = *request;
  requests_.emplace(added.seq, std::move(request));
  return added;
}

Branch& Scheduler::Impl::new_branch(Request& request, Stage stage) {
  request.branches.push_back(std::make_unique<Branch>(request, next_branch_++, layout_));
  Branch& branch = *request.branches.back();
  branch.stage = stage;
  by_stage_[static_cast<size_t>(stage)].insert(&branch);
  return branch;
}

void Scheduler::Impl::move_to(Branch& branch, Stage stage) {
  by_stage_[static_cast<size_t>(branch.stage)].erase(&branch);
  branch.stage = stage;
  by_stage_[static_cast<size_t>(stage)].insert(&branch);
}

Result<SeqId> Scheduler::Impl::add_prompt(SequenceSpec sequence, std::optional<PushTarget> push) {
  const Status fits =
      check(sequence.spec, sequence.prompt_len, sequence.tokens.size(), push.has_value());
  if (!fits.ok()) return fits;
  if (push.has_value()) {
    const auto tokens = static_cast<int32_t>(sequence.tokens.size());
    if (Status status = check_grant(layout_, *push, tokens); !status.ok()) return status;
  }
  const auto queued = static_cast<int32_t>(branches(Stage::kQueued).size());
  if (queued >= config_.waiting_max) {
    return Status(Code::kResourceExhausted, "scheduler: " + number(queued) +
                                                " requests wait, the limit is " +
                                                number(config_.waiting_max));
  }
  Request& request = new_request(sequence);
  request.push = std::move(push);
  Branch& prompt = new_branch(request, Stage::kQueued);
  prompt.tokens = std::move(sequence.tokens);
  for (int32_t i = 0; i < request.spec.n; ++i) {
    prompt.choices.push_back({request.spec.first_choice + i, -1});
  }
  return request.seq;
}

SeqId Scheduler::Impl::add_landed(SequenceSpec sequence, LandedPages pages,
                                  const std::vector<TokenEvent>& first_tokens) {
  const auto landed = static_cast<int32_t>(sequence.tokens.size());
  Request& request = new_request(sequence);
  request.started = request.prompt_done = true;
  Branch& prompt = new_branch(request, Stage::kDecoding);
  prompt.tokens = std::move(sequence.tokens);
  prompt.next_pos = prompt.computed = landed;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    prompt.pages.append(static_cast<int32_t>(g), pages.first_token[g], std::move(pages.pages[g]));
  }
  publish(prompt);
  const SeqId seq = request.seq;
  for (const TokenEvent& event : first_tokens) {
    const bool ends = event.finish != FinishReason::kNone || landed >= request.last_position;
    if (!ends) prompt.choices.push_back({event.choice, -1});
  }
  if (prompt.choices.empty()) {
    remove_branch(request, prompt);
    return seq;
  }
  split_into_choices(prompt);
  for (const auto& branch : request.branches) {
    const auto event = std::find_if(
        first_tokens.begin(), first_tokens.end(),
        [&](const TokenEvent& e) { return e.choice == branch->choices.front().number; });
    branch->tokens.push_back(event->token);
  }
  return seq;
}

int32_t Scheduler::Impl::local_running() const {
  size_t choices = branches(Stage::kDecoding).size();
  for (const Branch* branch : branches(Stage::kPrefilling)) {
    if (!branch->request->push) choices += branch->choices.size();
  }
  return static_cast<int32_t>(choices);
}

// Gives a queued or preempted branch all pages of its tokens; false: not now, it holds nothing.
bool Scheduler::Impl::admit(Branch& branch) {
  Request& request = *branch.request;
  // A preempted choice may have a token in the making: it is part of what has to be recomputed.
  if (branch.steps_in_flight > 0) return false;
  const auto choices = static_cast<int32_t>(branch.choices.size());
  if (!request.push && local_running() + choices > config_.running_max) return false;

  const bool computes_all = request.spec.prompt_logprobs >= 0 && !request.prompt_done;
  const auto last_token = static_cast<int32_t>(branch.tokens.size()) - 1;
  PrefixHit hit = prefix_cache_.match(branch.tokens, computes_all ? 0 : last_token,
                                      request.spec.cache_salt, !request.prefix_counted);
  request.prefix_counted = true;
  const int32_t cached_tokens = hit.tokens;
  if (!take_prompt_pages(branch, std::move(hit))) return false;

  branch.next_pos = branch.computed = branch.published = cached_tokens;
  if (!request.started) request.cached_tokens = cached_tokens;
  move_to(branch, Stage::kPrefilling);
  return true;
}

int32_t Scheduler::Impl::pages_missing(const Branch& branch, int32_t group,
                                       int32_t cached_tokens) const {
  const KvGroup& kv_group = layout_.groups[static_cast<size_t>(group)];
  return kv_group.pages_for(static_cast<int32_t>(branch.tokens.size())) -
         cached_tokens / kv_group.page_tokens;
}

bool Scheduler::Impl::take_prompt_pages(Branch& branch, PrefixHit hit) {
  // While others run, one page of growth for each of them and each newcomer stays free, or the
  // newcomer's pages would soon be taken away again.
  const int32_t running = local_running();
  const auto newcomers = branch.request->push ? 0 : static_cast<int32_t>(branch.choices.size());
  const int32_t headroom = running > 0 ? running + newcomers : 0;
  for (int32_t g = 0; g < ledger_.num_groups(); ++g) {
    if (ledger_.available(g) < pages_missing(branch, g, hit.tokens) + headroom) {
      drop_pages(std::move(hit.pages));
      return false;
    }
  }
  for (int32_t g = 0; g < ledger_.num_groups(); ++g) {
    const auto group = static_cast<size_t>(g);
    branch.pages.append(g, hit.first_token[group], std::move(hit.pages[group]));
    branch.pages.append(g, hit.tokens, ledger_.take(g, pages_missing(branch, g, hit.tokens)));
  }
  return true;
}

}  // namespace baton
