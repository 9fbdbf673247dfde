#include "prefill/push_side.h"

#include <algorithm>

#include "base/log.h"

namespace baton {

namespace {

bool all_finished(const std::vector<TokenEvent>& first_tokens) {
  return std::all_of(first_tokens.begin(), first_tokens.end(),
                     [](const TokenEvent& event) { return event.finish != FinishReason::kNone; });
}

}  // namespace

PushSide::PushSide(const PrefillConfig& config, int64_t attach_timeout_ms, int32_t priority_tokens,
                   const KvLayout& layout, Scheduler& scheduler, const PrefixCache& prefix_cache,
                   PageMover& mover, Outbox& outbox, RouterLinks& routers, const Clock& clock,
                   HandoffWatch* watch)
    : config_(config),
      attach_timeout_us_(attach_timeout_ms * 1000),
      layout_(layout),
      scheduler_(scheduler),
      prefix_cache_(prefix_cache),
      mover_(mover),
      outbox_(outbox),
      routers_(routers),
      clock_(clock),
      watch_(watch),
      fair_order_(priority_tokens) {}

// ---- from the router ----

void PushSide::on_prefill(Prefill prefill) {
  const AttemptId id = prefill.id;
  if (handoffs_.count(id) != 0) return;  // repeated: the first one counts
  if (handoffs_.size() >= static_cast<size_t>(config_.queue_max)) {
    routers_.send(id.id, Refused{.id = id,
                                 .retry_after_ms = config_.retry_after_ms,
                                 .reason = "too many prompts wait"});
    return;
  }
  Handoff& handoff = handoffs_[id];
  handoff.id = id;
  handoff.prefill = std::move(prefill);
  enter(handoff, State::kQueued);
  if (handoff.prefill.candidates.empty()) {
    start_local(handoff);
  } else {
    if (queue_.empty()) fair_order_.reset();
    const SamplingSpec& spec = handoff.prefill.spec;
    handoff.place =
        fair_order_.place(id.id.router_epoch, spec.priority, std::ssize(handoff.prefill.tokens));
    enqueue(handoff);
    pump();
  }
}

void PushSide::start_local(Handoff& handoff) {
  const Prefill& prefill = handoff.prefill;
  const AttemptId id = handoff.id;
  auto seq =
      scheduler_.add_prompt({id, prefill.spec, prefill.prompt_len, prefill.tokens}, std::nullopt);
  if (seq.ok()) {
    handoff.seq = *seq;
    sequences_[*seq] = id;
    enter(handoff, State::kLocal);
    return;
  }
  refuse_or_fail(id, seq.status());
  erase(id);
}

void PushSide::refuse_or_fail(const AttemptId& id, const Status& status) {
  if (status.code() == Code::kResourceExhausted) {
    routers_.send(
        id.id,
        Refused{.id = id, .retry_after_ms = config_.retry_after_ms, .reason = status.message()});
  } else {
    routers_.send(id.id, Failed{.id = id, .retryable = false, .message = status.message()});
  }
}

void PushSide::on_cancel(const AttemptId& id) {
  if (Handoff* handoff = find(id)) stop(*handoff);
  pump();
}

void PushSide::on_router_lost(Epoch router_epoch) {
  for (const AttemptId& id :
       ids_where([&](const Handoff& h) { return h.id.id.router_epoch == router_epoch; })) {
    if (Handoff* handoff = find(id)) stop(*handoff);  // stopping one may have ended another
  }
  pump();
}

// ---- computing and pushing ----

void PushSide::on_started(const PromptStarted& started) {
  const auto it = sequences_.find(started.seq);
  if (it == sequences_.end()) return;  // a local prefill of the decode side
  Handoff& handoff = *find(it->second);
  if (handoff.state != State::kGranted) return;  // local
  enter(handoff, State::kPrefilling);
  mover_.begin(handoff.transfer, handoff.link, handoff.slot_gen);
  mover_.push(started.ready);
  pump();
}

// Told before the step runs: the handoff thread then needs nobody's word when the last copy has
// ended.
void PushSide::on_last_step(SeqId seq, uint64_t step) {
  const auto it = sequences_.find(seq);
  if (it == sequences_.end()) return;
  const Handoff& handoff = *find(it->second);
  if (handoff.state == State::kPrefilling) mover_.finish(handoff.transfer, step);
}

void PushSide::on_prompt_done(PromptDone done, int64_t computed_at_us) {
  const auto it = sequences_.find(done.seq);
  if (it == sequences_.end()) return;
  Handoff& handoff = *find(it->second);
  routers_.send(done.id.id, Usage{.id = done.id, .cached_tokens = done.cached_tokens});
  if (!done.pushed) return;
  sequences_.erase(it);
  handoff.seq = 0;
  handoff.pages = std::move(done.pages);
  handoff.first_tokens = std::move(done.first_tokens);
  enter(handoff, State::kTransferring);
  handoff.computed_at_us = computed_at_us > 0 ? computed_at_us : handoff.since_us();
  if (all_finished(handoff.first_tokens)) {
    stop(handoff);  // nothing is left to decode: D gets DRAINED instead of COMMIT
  } else if (handoff.copied) {
    commit(handoff);
  }
}

void PushSide::on_ended(SeqId seq) {
  const auto it = sequences_.find(seq);
  if (it != sequences_.end()) erase(AttemptId(it->second));
}

void PushSide::commit(Handoff& handoff) {
  Commit commit{.id = handoff.id, .slot_gen = handoff.slot_gen};
  commit.token_count = static_cast<int32_t>(handoff.prefill.tokens.size());
  commit.digest = handoff.digest;
  commit.first_tokens = handoff.first_tokens;
  handoff.pages.clear();
  transfers_.erase(handoff.transfer);
  if (watch_ != nullptr) {
    watch_->handoff_pushed({.transport = transport_of(handoff.link),
                            .bytes = handoff.push_bytes,
                            .tail_s = seconds_since(handoff.since_us())});
  }
  enter(handoff, State::kCommitted);
  outbox_.send(handoff.link, std::move(commit));
}

void PushSide::on_ack(LinkId link, const Ack& ack) {
  Handoff* handoff = by_grant(link, ack.slot_gen);
  if (handoff == nullptr || handoff->state != State::kCommitted) return;
  const AttemptId id = handoff->id;
  if (ack.accepted) {
    tell_landed(*handoff);
  } else {
    routers_.send(id.id, failed(id, "the decode worker had given up its grant"));
  }
  erase(id);
}

// Exposed: what the handoff has added, from the prompt's last kernel to D's answer to COMMIT, its
// way back included.
void PushSide::tell_landed(const Handoff& handoff) const {
  const int64_t now_us = clock_.now_us();
  if (watch_ != nullptr) watch_->handoff_landed(seconds_since(handoff.computed_at_us));
  log_debug("handoff_landed", {{"request", to_string(handoff.id)},
                               {"tokens", handoff.prefill.tokens.size()},
                               {"arrived_at_us", handoff.entered(State::kQueued)},
                               {"granted_at_us", handoff.entered(State::kGranted)},
                               {"started_at_us", handoff.entered(State::kPrefilling)},
                               {"computed_at_us", handoff.computed_at_us},
                               {"told_at_us", handoff.entered(State::kTransferring)},
                               {"committed_at_us", handoff.entered(State::kCommitted)},
                               {"exposed_us", now_us - handoff.computed_at_us}});
}

void PushSide::on_release(LinkId link, const Release& release) {
  Handoff* handoff = by_grant(link, release.slot_gen);
  if (handoff == nullptr) {
    outbox_.send(link, Drained{release.slot_gen});  // we hold nothing of it, now or later
    return;
  }
  if (handoff->state == State::kDraining || handoff->state == State::kCommitted)
    return;  // DRAINED or NAK will tell
  routers_.send(handoff->id.id, failed(handoff->id, "the decode worker took back its grant"));
  stop(*handoff);
}

// ---- stopping: nothing is given back while a copy may still read or write it ----

void PushSide::stop(Handoff& handoff) {
  const AttemptId id = handoff.id;
  if (handoff.seq != 0) {
    handoff.pages = scheduler_.cancel(handoff.seq);
    sequences_.erase(handoff.seq);
    handoff.seq = 0;
  }
  switch (handoff.state) {
    case State::kQueued:
    case State::kLocal:
    case State::kCommitted:  // D has its own CANCEL
      erase(id);
      break;
    case State::kReserving:
      handoff.cancelled = true;  // the answer, or the link's end, is still to come
      break;
    case State::kGranted:
      drained(handoff);
      break;
    case State::kPrefilling:
    case State::kTransferring:
      if (handoff.copied) return drained(handoff);
      enter(handoff, State::kDraining);
      mover_.abort(handoff.transfer);
      break;
    case State::kDraining:
      break;
  }
}

void PushSide::drained(Handoff& handoff) {
  outbox_.send(handoff.link, Drained{handoff.slot_gen});
  erase(AttemptId(handoff.id));
  pump();
}

void PushSide::on_mover(const MoverEvent& event) {
  using Kind = MoverEvent::Kind;
  if (event.kind == Kind::kAttached || event.kind == Kind::kAttachFailed ||
      event.kind == Kind::kDetached) {
    on_mover_link(event);
    return;
  }
  Handoff* handoff = by_transfer(event.transfer);
  if (handoff == nullptr) return;
  if (event.kind == Kind::kDone && handoff->state != State::kDraining) {
    handoff->copied = true;
    handoff->digest = event.digest;
    if (handoff->state == State::kTransferring) commit(*handoff);
    return;
  }
  if (handoff->state !=
      State::kDraining) {  // kFailed: the copies have ended, the computing may go on
    if (watch_ != nullptr) watch_->handoff_failed();
    routers_.send(handoff->id.id, failed(handoff->id, "the handoff failed: " + event.error));
    if (handoff->seq != 0) {
      handoff->pages = scheduler_.cancel(handoff->seq);
      sequences_.erase(handoff->seq);
      handoff->seq = 0;
    }
  }
  drained(*handoff);
}

void PushSide::on_timer() {
  const int64_t now = clock_.now_us();
  const auto late = [&](const Handoff& handoff, int64_t limit_ms) {
    return now - handoff.since_us() > limit_ms * 1000;
  };
  for (const AttemptId& id : ids_where([&](const Handoff& h) {
         return (h.state == State::kGranted && late(h, config_.reserve_ttl_ms)) ||
                ((h.state == State::kReserving || h.state == State::kCommitted) &&
                 late(h, config_.reserve_wait_ms));
       })) {
    Handoff& handoff = *find(id);
    if (handoff.state == State::kGranted) {
      routers_.send(id.id, Refused{.id = id,
                                   .retry_after_ms = config_.retry_after_ms,
                                   .reason = "prefill worker is busy"});
      stop(handoff);
    } else if (handoff.cancelled || handoff.state == State::kCommitted) {
      erase(id);  // a late GRANT is answered with DRAINED, a late NAK D tells the router itself
    } else if (next_candidate(handoff, "no answer to RESERVE")) {
      enqueue(handoff);
    }
  }
  forget_peers();
  pump();
}

// ---- bookkeeping ----

void PushSide::enter(Handoff& handoff, State state) {
  handoff.state = state;
  handoff.entered_us[static_cast<size_t>(state)] = clock_.now_us();
}

PushSide::Handoff* PushSide::find(const AttemptId& id) {
  const auto it = handoffs_.find(id);
  return it == handoffs_.end() ? nullptr : &it->second;
}

PushSide::Handoff* PushSide::by_transfer(TransferId transfer) {
  const auto it = transfers_.find(transfer);
  return it == transfers_.end() ? nullptr : find(it->second);
}

PushSide::Handoff* PushSide::by_grant(LinkId link, uint64_t slot_gen) {
  const auto it = grants_.find({link, slot_gen});
  return it == grants_.end() ? nullptr : find(it->second);
}

void PushSide::erase(const AttemptId& id) {
  const auto it = handoffs_.find(id);
  if (it == handoffs_.end()) return;
  transfers_.erase(it->second.transfer);
  grants_.erase({it->second.link, it->second.slot_gen});
  sequences_.erase(it->second.seq);
  handoffs_.erase(it);
}

int64_t PushSide::queued_tokens() const {
  int64_t tokens = 0;
  for (const auto& [id, handoff] : handoffs_) {
    const bool asks = handoff.state == State::kQueued || handoff.state == State::kReserving;
    if (asks && !handoff.cancelled) tokens += std::ssize(handoff.prefill.tokens);
  }
  return tokens;
}

const char* PushSide::stage(const AttemptId& id) const {
  const auto it = handoffs_.find(id);
  return it == handoffs_.end() ? "" : name_of(it->second.state);
}

std::vector<HandoffView> PushSide::views() const {
  std::vector<HandoffView> views;
  for (const auto& [id, handoff] : handoffs_) {
    HandoffView& view = views.emplace_back();
    view.id = id;
    view.state = handoff.cancelled ? "cancelled" : name_of(handoff.state);
    if (!handoff.prefill.candidates.empty()) {
      view.peer = handoff.prefill.candidates[handoff.candidate];
    }
    view.slot_gen = handoff.slot_gen;
    view.tokens = std::ssize(handoff.prefill.tokens);
    for (const auto& group : handoff.pages) view.pages += std::ssize(group);
    view.age_us = clock_.now_us() - handoff.since_us();
  }
  return views;
}

const char* PushSide::name_of(State state) {
  switch (state) {
    case State::kQueued:
      return "queued";
    case State::kReserving:
      return "reserving";
    case State::kGranted:
      return "granted";
    case State::kPrefilling:
      return "prefilling";
    case State::kTransferring:
      return "transferring";
    case State::kCommitted:
      return "committed";
    case State::kDraining:
      return "draining";
    case State::kLocal:
      return "prefilling";
  }
  return "";
}

}  // namespace baton
