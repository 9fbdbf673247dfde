// The pushing side before it holds anything: asks the candidates for room, in order, and starts the
// prompt when one grants it.
#include <algorithm>

#include "prefill/push_side.h"

namespace baton {

void PushSide::pump() {
  Ahead ahead;
  for (const auto& [id, handoff] : handoffs_) {
    if (handoff.state != State::kReserving && handoff.state != State::kGranted) continue;
    ++ahead.total;
    ++ahead.of_peer[handoff.prefill.candidates[handoff.candidate]];
  }
  const auto waiting = std::exchange(queue_, {});
  for (const auto& [order, id] : waiting) {
    Handoff* handoff = find(id);
    if (handoff == nullptr || handoff->state != State::kQueued) continue;
    const Place place = handoff->place;
    if (ahead.total < config_.reserve_ahead && ask_candidate(*handoff, ahead)) {
      fair_order_.serve(place);
    } else if (find(id) != nullptr) {
      enqueue(*handoff);
    }
  }
}

// One decode worker that does not answer must not hold up the prompts for the others.
bool PushSide::has_share(const std::string& name, const Ahead& ahead) const {
  const auto found = ahead.of_peer.find(name);
  const int32_t held = found == ahead.of_peer.end() ? 0 : found->second;
  const auto share = static_cast<int32_t>(config_.max_peer_share * config_.reserve_ahead);
  const bool has_others = std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    return entry.first != name && entry.second.attached;
  });
  return !has_others || held < std::max(share, 1);
}

// Sends RESERVE to the current candidate, or moves on to one that can be reached. False: nothing
// was asked; the handoff waits for a connection or for its turn, or is gone.
bool PushSide::ask_candidate(Handoff& handoff, Ahead& ahead) {
  while (true) {
    const std::string& name = handoff.prefill.candidates[handoff.candidate];
    DecodePeer& peer = peers_[name];
    peer.used_us = clock_.now_us();
    if (peer.attached) {
      if (!has_share(name, ahead)) return false;
      ++ahead.total;
      ++ahead.of_peer[name];
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
  if (watch_ != nullptr) watch_->reserve_answered(seconds_since(handoff->since_us()));
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
      enqueue(*handoff);
    }
  }
  pump();
}

void PushSide::on_grant(LinkId link, Grant grant) {
  if (by_grant(link, grant.slot_gen) != nullptr) return;  // repeated: the first one counts
  Handoff* handoff = find(grant.id);
  const bool wanted =
      handoff != nullptr && handoff->state == State::kReserving && handoff->link == link;
  if (!wanted || handoff->cancelled) {
    outbox_.send(link, Drained{grant.slot_gen});
    if (wanted) erase(grant.id);
    pump();
    return;
  }
  if (watch_ != nullptr) watch_->reserve_answered(seconds_since(handoff->since_us()));
  for (size_t g = 0; g < grant.groups.size() && g < layout_.groups.size(); ++g) {
    handoff->push_bytes += std::ssize(grant.groups[g].page_ids) * layout_.groups[g].page_bytes();
  }
  grants_[{link, grant.slot_gen}] = grant.id;
  handoff->slot_gen = grant.slot_gen;
  handoff->transfer = next_transfer_++;
  transfers_[handoff->transfer] = grant.id;
  enter(*handoff, State::kGranted);

  const Prefill& prefill = handoff->prefill;
  PushTarget target{handoff->transfer, grant.cached_tokens, std::move(grant.groups)};
  auto seq = scheduler_.add_prompt({grant.id, prefill.spec, prefill.prompt_len, prefill.tokens},
                                   std::move(target));
  if (!seq.ok()) {
    const bool of_prompt =
        seq.status().code() == Code::kResourceExhausted ||
        !scheduler_.check(prefill.spec, prefill.prompt_len, prefill.tokens.size(), true).ok();
    if (of_prompt) {
      refuse_or_fail(grant.id, seq.status());
    } else {  // another decode worker may grant better
      routers_.send(grant.id.id,
                    failed(grant.id, "the decode worker's grant: " + seq.status().message()));
    }
    drained(*handoff);
    return;
  }
  handoff->seq = *seq;
  sequences_[*seq] = grant.id;
  routers_.send(grant.id.id,
                Placed{.id = grant.id, .decode_worker = prefill.candidates[handoff->candidate]});
}

}  // namespace baton
