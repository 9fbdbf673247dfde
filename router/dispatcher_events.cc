// What workers and links tell the dispatcher: placements, tokens, losses.
#include <algorithm>
#include <iterator>
#include <utility>

#include "router/dispatcher.h"

namespace baton {
namespace {

constexpr int64_t kDeadlineSlackUs = 50'000;

}  // namespace

void Dispatcher::on_link_up(LinkId link, const PeerInfo& peer, const std::string& address) {
  placement_.add(link, peer, address);
  place_queued();
}

void Dispatcher::on_link_down(LinkId link, const std::string& reason) {
  const Worker* worker = placement_.find(link);
  if (worker == nullptr) return;
  const std::string lost = "worker " + worker->peer.worker_id + " is gone: " + reason;
  placement_.remove(link);
  std::vector<RequestId> affected;
  for (const auto& [id, part] : parts_) {
    const bool opened =
        std::find(part.opened.begin(), part.opened.end(), link) != part.opened.end();
    if (part.sent && (opened || part.prefill == link)) affected.push_back(id);
  }
  for (const RequestId& id : affected) {
    const auto it = parts_.find(id);
    if (it == parts_.end()) continue;  // its generation has failed with another part
    Part& part = it->second;
    const bool had_decode = !part.opened.empty();
    std::erase(part.opened, link);
    const bool decode_lost = had_decode && part.opened.empty();
    const bool prefill_lost = part.prefill == link && !part.decode_spoke;
    if (part.prefill == link) part.prefill = 0;
    if (decode_lost || prefill_lost) replay(part, lost);
  }
}

void Dispatcher::on_message(LinkId link, const Message& message) {
  if (placement_.find(link) == nullptr) return;
  if (const auto* events = std::get_if<Events>(&message)) {
    handle(link, *events);
  } else if (const auto* placed = std::get_if<Placed>(&message)) {
    handle(link, *placed);
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    handle(link, *refused);
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    handle(link, *failed);
  } else if (const auto* logprobs = std::get_if<PromptLogprobs>(&message)) {
    handle(link, *logprobs);
  } else if (const auto* usage = std::get_if<Usage>(&message)) {
    handle(link, *usage);
  } else if (const auto* status = std::get_if<WorkerStatus>(&message)) {
    placement_.update(link, *status, clock_.now_us());
  } else if (std::holds_alternative<Draining>(message)) {
    placement_.set_draining(link);
  }
}

Dispatcher::Part* Dispatcher::current(const AttemptId& id) {
  const auto it = parts_.find(id.id);
  if (it == parts_.end() || !it->second.sent || it->second.attempt != id.attempt) {
    metrics_.stale_message();
    return nullptr;
  }
  return &it->second;
}

void Dispatcher::handle(LinkId link, const Placed& placed) {
  Part* part = current(placed.id);
  if (part == nullptr) return;
  part->answered = true;
  part->placed_us = clock_.now_us();
  LinkId decode = link;
  if (!placed.decode_worker.empty()) {
    decode = 0;
    for (const LinkId opened : part->opened) {
      const Worker* worker = placement_.find(opened);
      if (worker != nullptr && worker->peer.worker_id == placed.decode_worker) decode = opened;
    }
    if (decode == 0) {
      replay(*part, "worker " + placed.decode_worker + " was chosen and is gone");
      return;
    }
  }
  settle_on(*part, decode);
  if (placed.local && decode != part->prefill) part->prefill = 0;  // P has dropped it
}

void Dispatcher::handle(LinkId link, const Failed& failed) {
  Part* part = current(failed.id);
  if (part == nullptr) return;
  const Worker* worker = placement_.find(link);
  const std::string reason = "worker " + worker->peer.worker_id + ": " + failed.message;
  if (failed.retryable) {
    replay(*part, reason);
  } else if (clock_.now_us() + kDeadlineSlackUs >= generations_.at(part->generation).deadline_us) {
    fail_overdue(part->generation);  // the worker's clock was a little faster than ours
  } else {
    // Refused from the start: the request itself is what no worker can do.
    const bool started = !generations_.at(part->generation).waiting;
    fail(part->generation, started ? internal_error(reason) : invalid_argument(reason));
  }
}

void Dispatcher::handle(LinkId link, const Events& events) {
  for (const TokenEvent& event : events.events) take_token(link, event);
}

void Dispatcher::take_token(LinkId link, const TokenEvent& event) {
  Part* part = current(event.id);
  if (part == nullptr) return;
  if (event.choice < part->first_choice || event.choice >= part->first_choice + part->n) {
    metrics_.stale_message();
    return;
  }
  if (event.finish == FinishReason::kAbort || event.finish == FinishReason::kError) {
    replay(*part, "worker " + placement_.find(link)->peer.worker_id + " gave the request up");
    return;
  }
  part->answered = true;
  Generation& generation = generations_.at(part->generation);
  if (!scored(generation)) {
    part->unscored.emplace_back(link, event);
    return;
  }
  if (std::find(part->opened.begin(), part->opened.end(), link) != part->opened.end()) {
    settle_on(*part, link);  // a token of D may overtake the PLACED of P
    if (!part->decode_spoke) {
      placement_.remember(part->chain, link);  // its pages are there now
      if (const int64_t since_us = part->prefill_spoke_us; since_us != 0)
        metrics_.landed(static_cast<double>(clock_.now_us() - since_us) * 1e-6);
    }
    part->decode_spoke = true;
  } else if (link == part->prefill) {
    if (part->prefill_spoke_us == 0) part->prefill_spoke_us = clock_.now_us();
  } else {
    metrics_.stale_message();
    return;
  }
  Choice& choice = generation.choices[static_cast<size_t>(event.choice)];
  if (choice.finished) return;
  tell_workers(*part, generation, link);
  std::vector<TokenEvent> released;
  switch (choice.relay.offer(event, released)) {
    case ChoiceRelay::Verdict::kRepeat:
      metrics_.repeated_token();
      return;
    case ChoiceRelay::Verdict::kOverflow:
      replay(*part, "a hole in the tokens of choice " + std::to_string(event.choice));
      return;
    case ChoiceRelay::Verdict::kHeld:
    case ChoiceRelay::Verdict::kReleased:
      break;
  }
  if (!released.empty()) part->recoveries = 0;  // what makes progress may lose workers for ever
  for (const TokenEvent& next : released) {
    if (choice.finished || !release(*part, generation, next, link)) return;
  }
}

// The sink hears of a prompt's log-probabilities, if it wants them, before the first token: an
// echoed prompt goes out before what follows it. P sends them before its tokens, D's may be faster.
bool Dispatcher::scored(const Generation& generation) {
  const auto prompt_len = static_cast<int32_t>(generation.request.prompt.size());
  return generation.request.spec.prompt_logprobs < 0 || prompt_len == 1 ||
         generation.scored_positions >= prompt_len;
}

void Dispatcher::take_unscored(const Generation& generation) {
  std::vector<std::pair<LinkId, TokenEvent>> waiting;
  for (const RequestId id : generation.parts) {
    auto& unscored = parts_.at(id).unscored;
    std::move(unscored.begin(), unscored.end(), std::back_inserter(waiting));
    unscored.clear();
  }
  for (const auto& [link, event] : waiting) take_token(link, event);  // may end the generation
}

void Dispatcher::tell_workers(Part& part, const Generation& generation, LinkId from) {
  if (part.spoke == from) return;
  part.spoke = from;
  const bool decodes = std::find(part.opened.begin(), part.opened.end(), from) != part.opened.end();
  const auto name = [this](LinkId link) {
    const Worker* worker = placement_.find(link);
    return worker == nullptr ? std::string() : worker->peer.worker_id;
  };
  // Without a prefill worker, or after LOCAL, the decode worker has computed the prompt itself.
  generation.sink->on_workers(generation.request.prompt_index,
                              name(part.prefill != 0 ? part.prefill : from),
                              decodes ? name(from) : "");
}

bool Dispatcher::release(Part& part, Generation& generation, const TokenEvent& event, LinkId from) {
  Choice& choice = generation.choices[static_cast<size_t>(event.choice)];
  choice.accepted.push_back(event.token);
  if (generation.waiting) {
    generation.sink->on_first_token({.sent_us = part.sent_us,
                                     .placed_us = part.placed_us,
                                     .computed_us = part.computed_us,
                                     .landed = part.prefill != 0 && from != part.prefill});
    generation.kv_compat_id = part.kv_compat_id;
    generation.waiting = false;
    --waiting_;
    if (generation.first_token_us != 0) {
      metrics_.predicted_ttft(static_cast<double>(clock_.now_us() - generation.first_token_us) *
                              1e-6);
    }
  }
  if (part.prefill_loaded != 0) set_load(part, 0, 0, part.decode_loaded);
  const bool wanted = generation.sink->on_token(generation.request.prompt_index, event);
  if (wanted && event.finish == FinishReason::kNone) return true;

  choice.finished = true;
  const auto first = generation.choices.begin() + part.first_choice;
  if (!std::all_of(first, first + part.n, [](const Choice& c) { return c.finished; })) {
    if (event.finish == FinishReason::kNone) {
      const Cancel cancel{{part.id, part.attempt}, event.choice};
      if (part.prefill != 0) outbox_.send(part.prefill, cancel);
      for (const LinkId link : part.opened) outbox_.send(link, cancel);
    }
    return true;
  }
  end_part(part, generation, event, from);
  return false;
}

void Dispatcher::end_part(Part& part, Generation& generation, const TokenEvent& last, LinkId from) {
  const AttemptId attempt{part.id, part.attempt};
  if (last.finish == FinishReason::kNone) {
    stop_attempt(part);
  } else {
    // The prefill worker saw the end: decode workers will get no COMMIT and wait for none.
    for (const LinkId link : part.opened) {
      if (link != from) outbox_.send(link, Close{attempt});
    }
    for (int32_t i = part.first_choice; i < part.first_choice + part.n; ++i) {
      std::vector<TokenId> tokens = generation.request.prompt;
      const auto& accepted = generation.choices[static_cast<size_t>(i)].accepted;
      tokens.insert(tokens.end(), accepted.begin(), accepted.end());
      placement_.remember(placement_.chain(tokens, generation.request.spec.cache_salt), from);
    }
  }
  const GenerationId id = generation.id;
  erase_part(attempt.id);
  if (generation.parts.empty()) erase_generation(id);
}

void Dispatcher::handle(LinkId, const PromptLogprobs& logprobs) {
  Part* part = current(logprobs.id);
  if (part == nullptr) return;
  Generation& generation = generations_.at(part->generation);
  // A replay scores again from the start; what has been told stays as it is.
  PromptLogprobs fresh = logprobs;
  const auto skip =
      std::min<int64_t>(std::max(0, generation.scored_positions - logprobs.first_position),
                        static_cast<int64_t>(fresh.tokens.size()));
  fresh.tokens.erase(fresh.tokens.begin(), fresh.tokens.begin() + skip);
  if (!fresh.top.empty()) {
    fresh.top.erase(fresh.top.begin(),
                    fresh.top.begin() + std::min<int64_t>(skip, std::ssize(fresh.top)));
  }
  if (fresh.tokens.empty()) return;
  fresh.first_position += static_cast<int32_t>(skip);
  generation.scored_positions = fresh.first_position + static_cast<int32_t>(fresh.tokens.size());
  generation.sink->on_prompt_logprobs(generation.request.prompt_index, fresh);
  if (scored(generation)) take_unscored(generation);
}

void Dispatcher::handle(LinkId, const Usage& usage) {
  Part* part = current(usage.id);
  if (part == nullptr) return;
  part->answered = true;
  if (part->computed_us == 0) part->computed_us = clock_.now_us();
  Generation& generation = generations_.at(part->generation);
  if (generation.cached_tokens >= 0) return;  // of the first attempt: a replay finds its own prefix
  generation.cached_tokens = usage.cached_tokens;
  generation.sink->on_cached_tokens(generation.request.prompt_index, usage.cached_tokens);
}

}  // namespace baton
