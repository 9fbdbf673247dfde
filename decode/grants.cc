// The landing side's grants: how they end (DRAINED, DRAINED_ALL, proof of death; COMMIT is in
// landing.cc) and what only quarantines them.
#include <algorithm>

#include "decode/landing_side.h"

namespace baton {

void LandingSide::on_prefill_up(LinkId link, const PeerInfo& peer) {
  peers_[link] = Peer{.worker_id = peer.worker_id, .epoch = peer.epoch, .transport = ""};
  outbox_.send(link, Attach{.transport = "", .blob = mover_.offer(link), .reply = false});
}

void LandingSide::on_attached(LinkId link, const Attach& attach) {
  const auto it = peers_.find(link);
  if (it != peers_.end()) it->second.transport = attach.transport;
}

void LandingSide::on_drained(LinkId link, const Drained& drained) {
  const auto it = grants_.find(drained.slot_gen);
  if (it == grants_.end() || it->second.link != link) return;
  if (it->second.state == GrantState::kVerifying) return;  // its COMMIT has ended it
  if (Attempt* attempt = find(it->second.id);
      attempt != nullptr && attempt->slot_gen == drained.slot_gen) {
    attempt->state = State::kOpen;  // P has returned it; it may ask again
  }
  end_grant(drained.slot_gen);
}

void LandingSide::on_drained_all(LinkId link) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end()) return;
  std::vector<uint64_t> ended;
  for (const auto& [slot_gen, grant] : grants_) {
    const Peer& of = peers_.at(grant.link);
    if (grant.state == GrantState::kVerifying) continue;  // ours alone since its COMMIT
    if (grant.link < link && of.worker_id == peer->second.worker_id &&
        of.epoch == peer->second.epoch)
      ended.push_back(slot_gen);
  }
  for (const uint64_t slot_gen : ended) {
    give_up(slot_gen, "lost the prefill worker", /*tell_peer=*/false);  // its loss comes later
    end_grant(slot_gen);
  }
}

void LandingSide::on_link_down(LinkId link) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end()) return;
  peer->second.up = false;
  std::erase_if(pending_, [&](const auto& entry) { return entry.second.link == link; });
  mover_.forget(link);
  // Where we store ourselves, nothing can arrive over a closed connection.
  const bool ends = mover_.stores_ourselves(peer->second.transport);
  for (const uint64_t slot_gen : writable_grants_of(link)) {
    give_up(slot_gen, "lost the prefill worker", /*tell_peer=*/false);
    if (ends) end_grant(slot_gen);
  }
  forget_if_gone(link);
}

void LandingSide::on_mover(const MoverEvent& event) {
  if (event.kind == MoverEvent::Kind::kVerified) on_verified(event.slot_gen, event.intact);
  if (event.kind == MoverEvent::Kind::kPeerDead) on_peer_dead(event.link);
  if (event.kind == MoverEvent::Kind::kStoresEnded) on_stores_ended(event.link, event.transport);
}

// Proof for what the peer pushed by this transport, and it pushed by no other.
void LandingSide::on_stores_ended(LinkId link, const std::string& transport) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end() || peer->second.up || peer->second.transport != transport) return;
  for (const uint64_t slot_gen : writable_grants_of(link)) end_grant(slot_gen);
}

// The process behind this link is dead: nothing of it can write to us any more, over whatever
// connection.
void LandingSide::on_peer_dead(LinkId link) {
  if (const auto peer = peers_.find(link); peer != peers_.end()) peer->second.dead = true;
  for (const uint64_t slot_gen : writable_grants_of(link)) {
    give_up(slot_gen, "the prefill worker died", /*tell_peer=*/false);
    end_grant(slot_gen);
  }
}

// Those that P may still write to.
std::vector<uint64_t> LandingSide::writable_grants_of(LinkId link) const {
  std::vector<uint64_t> found;
  for (const auto& [slot_gen, grant] : grants_) {
    if (grant.link == link && grant.state != GrantState::kVerifying) found.push_back(slot_gen);
  }
  return found;
}

// P has not committed and will not: the router places the request again, and finds our part of its
// prefix still here.
void LandingSide::give_up(uint64_t slot_gen, const std::string& why, bool tell_peer) {
  GrantedPages& grant = grants_.at(slot_gen);
  if (grant.state != GrantState::kGranted) return;
  const AttemptId id = grant.id;
  if (grant.cached.tokens > 0) {
    kept_prefixes_[id.id] = {std::move(grant.cached),
                             clock_.now_us() + config_.keep_prefix_ms * 1000};
  }
  quarantine(slot_gen, tell_peer);
  fail(id, why);
}

// Given up, but the peer may still be writing: nobody gets these pages yet.
void LandingSide::quarantine(uint64_t slot_gen, bool tell_peer) {
  GrantedPages& grant = grants_.at(slot_gen);
  if (grant.state != GrantState::kGranted) return;
  set_state(grant, GrantState::kQuarantined);
  grant.cached = {};  // only read here, never written by the peer
  for (const auto& group : grant.granted) {
    for (const PageRef& page : group) ledger_.set_state(page, PageState::kQuarantined);
  }
  if (tell_peer) outbox_.send(grant.link, Release{slot_gen});
}

void LandingSide::set_state(GrantedPages& grant, GrantState state) {
  grant.state = state;
  grant.since_us = clock_.now_us();
}

// The peer's last write has ended: the pages go home.
void LandingSide::end_grant(uint64_t slot_gen) {
  const auto it = grants_.find(slot_gen);
  if (it == grants_.end()) return;
  mover_.disallow(slot_gen);
  const LinkId link = it->second.link;
  grants_.erase(it);
  forget_if_gone(link);
}

// A peer is known for as long as its link or a grant of it lives.
void LandingSide::forget_if_gone(LinkId link) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end() || peer->second.up) return;
  const bool has_grants = std::any_of(grants_.begin(), grants_.end(),
                                      [&](const auto& entry) { return entry.second.link == link; });
  if (!has_grants) peers_.erase(peer);
}

int64_t LandingSide::landing_pages(int32_t group, const std::string& worker_id) const {
  int64_t pages = 0;
  for (const auto& [slot_gen, grant] : grants_) {
    if (worker_id.empty() || worker_of(grant.link) == worker_id)
      pages += static_cast<int64_t>(grant.granted[group].size());
  }
  return pages;
}

bool LandingSide::is_dead(LinkId link) const {
  const auto peer = peers_.find(link);
  return peer == peers_.end() || peer->second.dead;
}

const std::string& LandingSide::worker_of(LinkId link) const {
  return peers_.at(link).worker_id;
}

int64_t LandingSide::oldest_grant_us(PageState state) const {
  int64_t oldest = 0;
  for (const auto& [slot_gen, grant] : grants_) {
    const bool counts =
        (grant.state == GrantState::kQuarantined) == (state == PageState::kQuarantined);
    if (counts) oldest = std::max(oldest, clock_.now_us() - grant.since_us);
  }
  return oldest;
}

}  // namespace baton
