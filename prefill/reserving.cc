// The pushing side before it holds anything: asks the candidates for room, in order, and starts the
// prompt when one grants it.
#include <algorithm>

#include "prefill/push_side.h"

namespace baton {

void PushSide::pump() {
  auto ahead = std::count_if(handoffs_.begin(), handoffs_.end(), [](const auto& entry) {
    return entry.second.state == State::kReserving || entry.second.state == State::kGranted;
  });
  const std::deque<AttemptId> waiting = std::exchange(queue_, {});
  for (const AttemptId& id : waiting) {
    Handoff* handoff = find(id);
    if (handoff == nullptr || handoff->state != State::kQueued) continue;
    if (ahead < config_.reserve_ahead && ask_candidate(*handoff)) {
      ++ahead;
    } else if (find(id) != nullptr) {
      queue_.push_back(id);
    }
  }
}

// Sends RESERVE to the current candidate, or moves on to one that can be reached. False: nothing
// was asked; the handoff waits for a connection, or is gone.
bool PushSide::ask_candidate(Handoff& handoff) {
  while (true) {
    const std::string& name = handoff.prefill.candidates[handoff.candidate];
    DecodePeer& peer = peers_[name];
    peer.used_us = clock_.now_us();
    if (peer.attached) {
      send_reserve(handoff, peer);
      return true;
    }
    outbox_.connect(name);
    if (peer.wanted_since_us == 0) peer.wanted_since_us = clock_.now_us();
    const bool waited = clock_.now_us() - peer.wanted_since_us > attach_timeout_us_;
    if (!peer.attach_failed && !waited) return false;
    if (!next_candidate(handoff,
                        "no transport to " + name + ": " + (waited ? "no connection" : peer.error)))
      return false;
  }
}

void PushSide::send_reserve(Handoff& handoff, const DecodePeer& peer) {
  const Prefill& prefill = handoff.prefill;
  const auto prompt_tokens = static_cast<int32_t>(prefill.tokens.size());
  Reserve reserve{.id = handoff.id};
  reserve.cached_tokens =
      prefix_cache_.match_length(prefill.tokens, prompt_tokens - 1, prefill.spec.cache_salt);
  for (const KvGroup& group : layout_.groups)
    reserve.pages_per_group.push_back(group.pages_for(prompt_tokens));
  handoff.link = peer.link;
  enter(handoff, State::kReserving);
  outbox_.send(peer.link, std::move(reserve));
}

// False: that was the last one; the router has been told and the handoff is gone.
bool PushSide::next_candidate(Handoff& handoff, const std::string& why) {
  const AttemptId id = handoff.id;
  enter(handoff, State::kQueued);
  if (++handoff.candidate < handoff.prefill.candidates.size()) return true;
  if (handoff.any_full) {
    routers_.send(id.id,
                  Refused{.id = id, .retry_after_ms = handoff.retry_after_ms, .reason = why});
  } else {
    routers_.send(id.id, failed(id, why));
  }
  erase(id);
  return false;
}

void PushSide::on_refuse(LinkId link, const Refuse& refuse) {
  Handoff* handoff = find(refuse.id);
  if (handoff == nullptr || handoff->state != State::kReserving || handoff->link != link) return;
  if (handoff->cancelled) {
    erase(refuse.id);
  } else if (refuse.kind == Refuse::Kind::kLocal) {
    const std::string& name = handoff->prefill.candidates[handoff->candidate];
    routers_.send(refuse.id.id, Placed{.id = refuse.id, .decode_worker = name, .local = true});
    erase(refuse.id);
  } else {
    const bool full = refuse.kind == Refuse::Kind::kFull;
    handoff->any_full |= full;
    handoff->retry_after_ms = std::max(handoff->retry_after_ms, refuse.retry_after_ms);
    const std::string name = handoff->prefill.candidates[handoff->candidate];
    if (next_candidate(*handoff,
                       name + (full ? ": no room for the prompt's pages" : ": unknown request"))) {
      queue_.push_front(refuse.id);
    }
  }
  pump();
}

void PushSide::on_grant(LinkId link, Grant grant) {
  Handoff* handoff = find(grant.id);
  const bool wanted =
      handoff != nullptr && handoff->state == State::kReserving && handoff->link == link;
  if (!wanted || handoff->cancelled) {
    outbox_.send(link, Drained{grant.slot_gen});
    if (wanted) erase(grant.id);
    pump();
    return;
  }
  if (!grants_.try_emplace({link, grant.slot_gen}, grant.id).second) {
    outbox_.close(link, "granted slot_gen " + std::to_string(grant.slot_gen) + " twice");
    return;
  }
  handoff->slot_gen = grant.slot_gen;
  handoff->transfer = next_transfer_++;
  transfers_[handoff->transfer] = grant.id;
  enter(*handoff, State::kGranted);

  const Prefill& prefill = handoff->prefill;
  PushTarget target{handoff->transfer, grant.cached_tokens, std::move(grant.groups)};
  auto seq = scheduler_.add_prompt({grant.id, prefill.spec, prefill.prompt_len, prefill.tokens},
                                   std::move(target));
  if (!seq.ok()) {
    refuse_or_fail(grant.id, seq.status());
    drained(*handoff);
    return;
  }
  handoff->seq = *seq;
  sequences_[*seq] = grant.id;
  routers_.send(grant.id.id,
                Placed{.id = grant.id, .decode_worker = prefill.candidates[handoff->candidate]});
}

}  // namespace baton
