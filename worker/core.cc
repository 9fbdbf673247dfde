#include "worker/core.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/log.h"

namespace baton {

namespace {

constexpr const char* kDraining = "the worker is leaving";

// What the engine takes for granted; the router has checked it, but another router may not.
Status check_request(const PeerInfo& self, const SamplingSpec& spec, int32_t prompt_len,
                     const std::vector<TokenId>& tokens) {
  const auto count = static_cast<int32_t>(tokens.size());
  if (count < 1 || prompt_len < 1 || prompt_len > count) {
    return invalid_argument("prompt: got " + std::to_string(prompt_len) + " of " +
                            std::to_string(count) + " tokens, want at least 1");
  }
  if (count > self.context_len) {
    return invalid_argument("prompt: got " + std::to_string(count) + " tokens, want at most " +
                            std::to_string(self.context_len));
  }
  if (spec.n < 1 || spec.max_tokens < 0) {
    return invalid_argument("n and max_tokens: got " + std::to_string(spec.n) + " and " +
                            std::to_string(spec.max_tokens) + ", want at least 1 and 0");
  }
  const bool sane = spec.repetition_penalty >= 0.01F && spec.repetition_penalty <= 100 &&
                    std::isfinite(spec.temperature) && spec.temperature >= 0;
  if (!sane) return invalid_argument("temperature or repetition_penalty: out of range");
  // A negative id is larger than all others. Without a branch for each: long prompts are TTFT.
  uint32_t largest = 0;
  for (const TokenId token : tokens) largest = std::max(largest, static_cast<uint32_t>(token));
  if (largest >= static_cast<uint32_t>(self.vocab_size)) {
    return invalid_argument("prompt: got token id " +
                            std::to_string(static_cast<TokenId>(largest)) + ", want 0 to " +
                            std::to_string(self.vocab_size - 1));
  }
  return {};
}

// A moving average that forgets half of the past in about seven samples.
void average_in(double& mean, double sample) {
  mean = mean == 0 ? sample : 0.9 * mean + 0.1 * sample;
}

}  // namespace

WorkerCore::WorkerCore(const WorkerConfig& config, PeerInfo self, Parts parts)
    : config_(config),
      self_(std::move(self)),
      parts_(parts),
      routers_(parts.outbox),
      push_side_(config.prefill, config.kvtransfer.attach_timeout_ms,
                 config.scheduler.priority_tokens, parts.layout, parts.scheduler,
                 parts.prefix_cache, parts.mover, parts.outbox, routers_, parts.clock, parts.watch),
      landing_side_(config.decode, config.scheduler.priority_tokens, parts.layout, parts.scheduler,
                    parts.ledger, parts.prefix_cache, parts.mover, parts.outbox, routers_,
                    parts.clock) {}

void WorkerCore::handle(WorkerEvent event) {
  if (auto* wish = std::get_if<ViewWish>(&event)) return wish->answer->set_value(view());
  if (!fatal_error_.empty()) return;  // the process is about to end
  if (auto* link = std::get_if<LinkEvent>(&event)) {
    std::visit([this](auto&& what) { on(std::move(what)); }, std::move(*link));
  } else if (auto* moved = std::get_if<MoverEvent>(&event)) {
    if (moved->kind == MoverEvent::Kind::kBroken) return broken("the handoff: " + moved->error);
    const bool of_landing = moved->kind == MoverEvent::Kind::kPeerDead ||
                            moved->kind == MoverEvent::Kind::kStoresEnded ||
                            moved->kind == MoverEvent::Kind::kVerified;
    if (of_landing) {
      landing_side_.on_mover(*moved);
      count_landings();
    } else {
      push_side_.on_mover(*moved);
    }
  } else if (auto* output = std::get_if<StepOutput>(&event)) {
    on(std::move(*output));
  } else {
    begin_drain();
  }
}

// ---- links ----

void WorkerCore::on(LinkUp up) {
  if (up.peer.role == Role::kRouter) {
    peers_[up.link] = PeerKind::kRouter;
    routers_.up(up.link, up.peer.epoch);
    parts_.outbox.send(up.link, status());
    if (draining_) parts_.outbox.send(up.link, Draining{});
    return;
  }
  if (up.peer.kv_compat_id != self_.kv_compat_id) {
    parts_.outbox.close(up.link, "kv_compat_id of " + up.peer.worker_id + " is " +
                                     up.peer.kv_compat_id + ", ours is " + self_.kv_compat_id +
                                     ": another model, layout or version; pages cannot be shared");
    return;
  }
  if (up.address.empty()) {  // a prefill worker has dialled us
    peers_[up.link] = PeerKind::kPrefill;
    landing_side_.on_prefill_up(up.link, up.peer);
  } else {
    peers_[up.link] = PeerKind::kDecode;
    push_side_.on_decode_up(up.link, up.peer);
  }
}

void WorkerCore::on(LinkDown down) {
  const auto it = peers_.find(down.link);
  if (it == peers_.end()) return;
  const PeerKind kind = it->second;
  peers_.erase(it);
  switch (kind) {
    case PeerKind::kRouter:
      if (const Epoch epoch = routers_.down(down.link); epoch != 0) {
        push_side_.on_router_lost(epoch);
        landing_side_.on_router_lost(epoch);
      }
      break;
    case PeerKind::kPrefill:
      landing_side_.on_link_down(down.link);
      break;
    case PeerKind::kDecode:
      push_side_.on_link_down(down.link);
      break;
  }
}

void WorkerCore::on(LinkMessage message) {
  const auto it = peers_.find(message.link);
  if (it == peers_.end()) return;
  switch (it->second) {
    case PeerKind::kRouter:
      on_router_message(message.link, std::move(message.message));
      break;
    case PeerKind::kPrefill:
      on_prefill_message(message.link, std::move(message.message));
      break;
    case PeerKind::kDecode:
      on_decode_message(message.link, std::move(message.message));
      break;
  }
}

void WorkerCore::on_router_message(LinkId link, Message message) {
  // A router speaks of its own requests only; a link that has been replaced speaks of none.
  const auto own = [&](const AttemptId& id) {
    const bool owns = routers_.owns(link, id.id.router_epoch);
    if (!owns) ++counters_.stale_messages;
    return owns;
  };
  if (auto* open = std::get_if<Open>(&message)) {
    if (own(open->id)) on_open(std::move(*open));
  } else if (auto* prefill = std::get_if<Prefill>(&message)) {
    if (own(prefill->id)) on_prefill(std::move(*prefill));
  } else if (auto* cancel = std::get_if<Cancel>(&message)) {
    if (!own(cancel->id)) return;
    if (cancel->choice < 0) {
      attempts_.remove(cancel->id);
      push_side_.on_cancel(cancel->id);
    }
    landing_side_.on_cancel(cancel->id, cancel->choice);
  } else if (auto* close = std::get_if<Close>(&message)) {
    if (own(close->id)) landing_side_.on_close(close->id);
  } else {
    ++counters_.stale_messages;
  }
}

void WorkerCore::on_open(Open open) {
  if (draining_ && open.local) {
    routers_.send(open.id.id, Refused{.id = open.id, .retry_after_ms = 0, .reason = kDraining});
  } else if (draining_) {
    landing_side_.on_close(open.id);  // the RESERVE for it is answered GONE, at once
  } else if (accept(open.id, open.spec, open.prompt_len, open.tokens)) {
    landing_side_.on_open(std::move(open));
  }
}

void WorkerCore::on_prefill(Prefill prefill) {
  if (draining_) {
    routers_.send(prefill.id.id,
                  Refused{.id = prefill.id, .retry_after_ms = 0, .reason = kDraining});
  } else if (accept(prefill.id, prefill.spec, prefill.prompt_len, prefill.tokens)) {
    push_side_.on_prefill(std::move(prefill));
  }
}

bool WorkerCore::accept(const AttemptId& id, const SamplingSpec& spec, int32_t prompt_len,
                        const std::vector<TokenId>& tokens) {
  const Status status = check_request(self_, spec, prompt_len, tokens);
  if (!status.ok()) {
    routers_.send(id.id, Failed{.id = id, .retryable = false, .message = status.message()});
    return false;
  }
  const int64_t deadline_us = spec.deadline_ms > 0 ? parts_.clock.now_us() + spec.deadline_ms * 1000
                                                   : Attempts::kNoDeadline;
  attempts_.forget_ended([this](const AttemptId& known) { return !owes(known); });
  attempts_.add(id, deadline_us);
  return true;
}

void WorkerCore::on_prefill_message(LinkId link, Message message) {
  if (auto* reserve = std::get_if<Reserve>(&message)) {
    landing_side_.on_reserve(link, std::move(*reserve));
  } else if (auto* commit = std::get_if<Commit>(&message)) {
    on_commit(link, std::move(*commit));
  } else if (auto* drained = std::get_if<Drained>(&message)) {
    landing_side_.on_drained(link, *drained);
  } else if (std::holds_alternative<DrainedAll>(message)) {
    landing_side_.on_drained_all(link);
  } else if (auto* attach = std::get_if<Attach>(&message)) {
    landing_side_.on_attached(link, *attach);
  } else {
    ++counters_.stale_messages;
  }
}

void WorkerCore::on_commit(LinkId link, Commit commit) {
  for (const TokenEvent& event : commit.first_tokens) {
    if (event.token >= 0 && event.token < self_.vocab_size) continue;
    parts_.outbox.close(link, "COMMIT with token id " + std::to_string(event.token));
    return;
  }
  landing_side_.on_commit(link, std::move(commit));
  count_landings();
}

void WorkerCore::count_landings() {
  counters_.handoffs_landed = landing_side_.counts().landed;
  counters_.digest_mismatches = landing_side_.counts().digest_mismatches;
}

void WorkerCore::on_decode_message(LinkId link, Message message) {
  if (auto* grant = std::get_if<Grant>(&message)) {
    push_side_.on_grant(link, std::move(*grant));
  } else if (auto* refuse = std::get_if<Refuse>(&message)) {
    push_side_.on_refuse(link, *refuse);
  } else if (auto* ack = std::get_if<Ack>(&message)) {
    push_side_.on_ack(link, *ack);
  } else if (auto* release = std::get_if<Release>(&message)) {
    push_side_.on_release(link, *release);
  } else if (auto* offer = std::get_if<Attach>(&message)) {
    push_side_.on_offer(link, *offer);
  } else {
    ++counters_.stale_messages;
  }
}

// ---- steps ----

void WorkerCore::prepare_steps() {
  if (!fatal_error_.empty()) return;
  end_sequences(parts_.scheduler.take_ended());
  while (auto step = parts_.scheduler.next_step()) {
    for (const PromptStarted& started : step->started) push_side_.on_started(started);
    for (const SeqId seq : step->pushed_whole) push_side_.on_last_step(seq, step->input.step);
    StepSize size;
    for (const Chunk& chunk : step->input.chunks) {
      const bool decode = chunk.use_last || chunk.tokens.size() == 1;
      (decode ? size.decodes : size.prefill_tokens) += decode ? 1 : std::ssize(chunk.tokens);
      if (decode) size.context_tokens += chunk.first_pos + 1;
    }
    if (steps_in_flight_.empty()) step_begun_us_ = parts_.clock.now_us();
    steps_in_flight_.push_back(size);
    parts_.engine.submit(std::move(step->input));
  }
}

void WorkerCore::on(StepOutput output) {
  if (!output.error.empty()) {  // what this step computed cannot be trusted: the process ends
    return broken("the engine: " + output.error);
  }
  StepResult result = parts_.scheduler.complete(output);
  // Before the tokens: the router forgets a request with its last one.
  for (PromptLogprobs& logprobs : result.prompt_logprobs) {
    const RequestId id = logprobs.id.id;
    routers_.send(id, std::move(logprobs));
  }
  for (PromptDone& done : result.prompts_done) {
    counters_.prompt_tokens_cached += done.cached_tokens;
    landing_side_.on_prompt_done(done);
    push_side_.on_prompt_done(std::move(done), output.computed_at_us);
  }
  send_events(std::move(result.events));
  end_sequences(result.ended);
  measure(output);  // last: its line in the log would hold up COMMIT and the tokens
}

void WorkerCore::broken(const std::string& error) {
  fatal_error_ = error;
  hand_back("the worker has failed: " + error);
}

void WorkerCore::end_sequences(const std::vector<SeqId>& ended) {
  for (const SeqId seq : ended) {
    landing_side_.on_ended(seq);
    push_side_.on_ended(seq);
  }
}

void WorkerCore::measure(const StepOutput& output) {
  const StepSize size = steps_in_flight_.front();
  steps_in_flight_.pop_front();
  step_begun_us_ = parts_.clock.now_us();
  ++counters_.steps;
  counters_.prompt_tokens += size.prefill_tokens;
  counters_.generation_tokens += std::ssize(output.sampled);
  if (output.compute_us <= 0) return;
  log_debug("step", {{"prefill_tokens", size.prefill_tokens},
                     {"decodes", size.decodes},
                     {"context_tokens", size.context_tokens},
                     {"compute_us", output.compute_us},
                     {"computed_at_us", output.computed_at_us}});
  const auto us = static_cast<double>(output.compute_us);
  if (size.prefill_tokens >= 16)
    average_in(counters_.prefill_tokens_per_s, 1e6 * static_cast<double>(size.prefill_tokens) / us);
  if (size.prefill_tokens == 0) average_in(counters_.step_ms, us / 1000);
}

// One frame a step and router.
void WorkerCore::send_events(std::vector<TokenEvent> events) {
  std::map<Epoch, std::vector<TokenEvent>> by_router;
  for (TokenEvent& event : events) by_router[event.id.id.router_epoch].push_back(std::move(event));
  for (auto& [epoch, batch] : by_router)
    routers_.send(RequestId{epoch, 0}, Events{std::move(batch)});
}

}  // namespace baton
