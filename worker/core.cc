#include "worker/core.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace baton {

namespace {

constexpr int64_t kStatusIntervalUs = 20'000;    // at most so often, when something has changed
constexpr int64_t kStatusKeepaliveUs = 500'000;  // at least so often

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
  for (const TokenId token : tokens) {
    if (token >= 0 && token < self.vocab_size) continue;
    return invalid_argument("prompt: got token id " + std::to_string(token) + ", want 0 to " +
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
      push_side_(config.prefill, config.kvtransfer.attach_timeout_ms, parts.layout, parts.scheduler,
                 parts.prefix_cache, parts.mover, parts.outbox, routers_, parts.clock),
      landing_side_(config.decode, parts.layout, parts.scheduler, parts.ledger, parts.prefix_cache,
                    parts.mover, parts.outbox, routers_, parts.clock) {}

void WorkerCore::handle(WorkerEvent event) {
  if (!fatal_error_.empty()) return;  // the process is about to end
  if (auto* link = std::get_if<LinkEvent>(&event)) {
    std::visit([this](auto&& what) { on(std::move(what)); }, std::move(*link));
  } else if (auto* moved = std::get_if<MoverEvent>(&event)) {
    if (moved->kind == MoverEvent::Kind::kPeerDead) {
      landing_side_.on_mover(*moved);
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
    if (own(open->id) && acceptable(open->id, open->spec, open->prompt_len, open->tokens)) {
      landing_side_.on_open(std::move(*open));
    }
  } else if (auto* prefill = std::get_if<Prefill>(&message)) {
    if (own(prefill->id) &&
        acceptable(prefill->id, prefill->spec, prefill->prompt_len, prefill->tokens)) {
      push_side_.on_prefill(std::move(*prefill));
    }
  } else if (auto* cancel = std::get_if<Cancel>(&message)) {
    if (!own(cancel->id)) return;
    if (cancel->choice < 0) push_side_.on_cancel(cancel->id);
    landing_side_.on_cancel(cancel->id, cancel->choice);
  } else if (auto* close = std::get_if<Close>(&message)) {
    if (own(close->id)) landing_side_.on_close(close->id);
  } else {
    ++counters_.stale_messages;
  }
}

bool WorkerCore::acceptable(const AttemptId& id, const SamplingSpec& spec, int32_t prompt_len,
                            const std::vector<TokenId>& tokens) {
  const Status status = check_request(self_, spec, prompt_len, tokens);
  if (!status.ok()) {
    routers_.send(id.id, Failed{.id = id, .retryable = false, .message = status.message()});
  }
  return status.ok();
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
  if (landing_side_.on_commit(link, std::move(commit))) ++counters_.handoffs_landed;
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
    StepSize size;
    for (const Chunk& chunk : step->input.chunks) {
      const bool decode = chunk.use_last || chunk.tokens.size() == 1;
      (decode ? size.decodes : size.prefill_tokens) += decode ? 1 : std::ssize(chunk.tokens);
    }
    steps_in_flight_.push_back(size);
    parts_.engine.submit(std::move(step->input));
  }
}

void WorkerCore::on(StepOutput output) {
  measure(output);
  if (!output.error.empty()) {  // what this step computed cannot be trusted: the process ends
    fatal_error_ = output.error;
    return;
  }
  StepResult result = parts_.scheduler.complete(output);
  // Before the tokens: the router forgets a request with its last one.
  for (PromptLogprobs& logprobs : result.prompt_logprobs) {
    const RequestId id = logprobs.id.id;
    routers_.send(id, std::move(logprobs));
  }
  for (PromptDone& done : result.prompts_done) {
    landing_side_.on_prompt_done(done);
    push_side_.on_prompt_done(std::move(done));
  }
  send_events(std::move(result.events));
  end_sequences(result.ended);
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
  ++counters_.steps;
  counters_.prompt_tokens += size.prefill_tokens;
  counters_.generation_tokens += std::ssize(output.sampled);
  if (output.compute_us <= 0) return;
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

// ---- time, status, drain ----

void WorkerCore::on_timer() {
  push_side_.on_timer();
  landing_side_.on_timer();
  publish_status();
}

WorkerStatus WorkerCore::status() const {
  WorkerStatus status;
  status.running = parts_.scheduler.running();
  status.waiting = parts_.scheduler.waiting() + static_cast<int32_t>(push_side_.size());
  status.queued_tokens = parts_.scheduler.queued_tokens();
  status.prefill_tokens_per_s = counters_.prefill_tokens_per_s;
  status.step_ms = counters_.step_ms;
  status.draining = draining_;
  status.largest_prompt = self_.context_len;
  for (int32_t g = 0; g < parts_.ledger.num_groups(); ++g) {
    status.pages.push_back(parts_.ledger.counts(g));
    if (parts_.layout.groups[g].window > 0) continue;  // holds a window of any length of text
    status.largest_prompt = std::min(
        status.largest_prompt, status.pages.back().total * parts_.layout.groups[g].page_tokens);
  }
  return status;
}

void WorkerCore::publish_status() {
  if (routers_.empty()) return;
  const int64_t now = parts_.clock.now_us();
  if (now - last_status_us_ < kStatusIntervalUs) return;
  WorkerStatus current = status();
  if (current == last_status_ && now - last_status_us_ < kStatusKeepaliveUs) return;
  routers_.send_all(current);
  last_status_ = std::move(current);
  last_status_us_ = now;
}

void WorkerCore::begin_drain() {
  if (std::exchange(draining_, true)) return;
  routers_.send_all(Draining{});
}

bool WorkerCore::drained() const {
  return draining_ && push_side_.idle() && landing_side_.idle() && steps_in_flight_.empty();
}

}  // namespace baton
