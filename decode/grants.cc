// The landing side's grants: how they end (COMMIT, DRAINED, DRAINED_ALL, proof of death) and what
// only quarantines them.
#include <algorithm>

#include "decode/landing_side.h"

namespace baton {

namespace {

// One token a choice at most, in order, all of this attempt, right behind the prompt.
bool well_formed(const Commit& commit, const SamplingSpec& spec) {
  int64_t next = spec.first_choice;
  for (const TokenEvent& event : commit.first_tokens) {
    const bool fits = event.id == commit.id && event.position == commit.token_count &&
                      event.choice >= next && event.choice < int64_t{spec.first_choice} + spec.n;
    if (!fits) return false;
    next = int64_t{event.choice} + 1;
  }
  return true;
}

}  // namespace

void LandingSide::on_prefill_up(LinkId link, const PeerInfo& peer) {
  peers_[link] = Peer{.worker_id = peer.worker_id, .epoch = peer.epoch, .transport = ""};
  outbox_.send(link, Attach{.transport = "", .blob = mover_.offer(link), .reply = false});
}

void LandingSide::on_attached(LinkId link, const Attach& attach) {
  const auto it = peers_.find(link);
  if (it != peers_.end()) it->second.transport = attach.transport;
}

bool LandingSide::on_commit(LinkId link, Commit commit) {
  const auto it = grants_.find(commit.slot_gen);
  if (it == grants_.end() || it->second.link != link) {
    outbox_.send(link, Ack{.slot_gen = commit.slot_gen, .accepted = false});
    return false;
  }
  GrantedPages& grant = it->second;
  Attempt* attempt = find(grant.id);
  const bool wanted = !grant.quarantined && attempt != nullptr && grant.id == commit.id &&
                      commit.token_count == static_cast<int32_t>(attempt->open.tokens.size()) &&
                      well_formed(commit, attempt->open.spec);
  outbox_.send(link, Ack{.slot_gen = commit.slot_gen, .accepted = wanted});
  if (!wanted) {
    if (attempt != nullptr && attempt->slot_gen == commit.slot_gen && !grant.quarantined) {
      const AttemptId id = grant.id;
      routers_.send(
          id.id, Failed{.id = id, .retryable = true, .message = "COMMIT does not fit its grant"});
      erase(id);
    }
    end_grant(commit.slot_gen);  // COMMIT is also a DRAINED
    return false;
  }
  mover_.disallow(commit.slot_gen);
  GrantedPages pages = std::move(grant);
  grants_.erase(it);
  land(std::move(pages), std::move(commit));
  return true;
}

void LandingSide::land(GrantedPages pages, Commit commit) {
  Attempt& attempt = *find(pages.id);
  const auto prompt_tokens = static_cast<int32_t>(attempt.open.tokens.size());
  LandedPages landed;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    std::vector<PageRef>& row = landed.pages.emplace_back();
    const int32_t start = landing_start(layout_.groups[g], prompt_tokens, pages.cached.tokens);
    // Cached pages that the window has left behind are of no use.
    const bool joins = start == pages.cached.tokens && g < pages.cached.pages.size() &&
                       !pages.cached.pages[g].empty();
    landed.first_token.push_back(joins ? pages.cached.first_token[g] : start);
    if (joins) row = std::move(pages.cached.pages[g]);
    for (PageRef& page : pages.granted[g]) {
      ledger_.set_state(page, PageState::kUsed);
      row.push_back(std::move(page));
    }
  }
  attempt.state = State::kDecoding;
  attempt.seq = scheduler_.add_landed(
      {attempt.open.id, attempt.open.spec, attempt.open.prompt_len, attempt.open.tokens},
      std::move(landed), commit.first_tokens);
  sequences_[attempt.seq] = attempt.open.id;
  for (const int32_t choice : attempt.cancelled_choices) scheduler_.cancel(attempt.seq, choice);
  // Repeats what P has told the router itself: either path may be lost.
  routers_.send(attempt.open.id.id, Events{std::move(commit.first_tokens)});
}

void LandingSide::on_drained(LinkId link, const Drained& drained) {
  const auto it = grants_.find(drained.slot_gen);
  if (it == grants_.end() || it->second.link != link) return;
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
    if (grant.link < link && of.worker_id == peer->second.worker_id &&
        of.epoch == peer->second.epoch)
      ended.push_back(slot_gen);
  }
  for (const uint64_t slot_gen : ended) end_grant(slot_gen);
}

void LandingSide::on_link_down(LinkId link) {
  const auto peer = peers_.find(link);
  if (peer == peers_.end()) return;
  peer->second.up = false;
  std::erase_if(pending_, [&](const auto& entry) { return entry.second.link == link; });
  mover_.forget(link);
  std::vector<uint64_t> affected;
  for (const auto& [slot_gen, grant] : grants_) {
    if (grant.link == link) affected.push_back(slot_gen);
  }
  for (const uint64_t slot_gen : affected) {
    const GrantedPages& grant = grants_.at(slot_gen);
    if (!grant.quarantined) {
      const AttemptId id = grant.id;
      quarantine(slot_gen, /*tell_peer=*/false);
      routers_.send(id.id,
                    Failed{.id = id, .retryable = true, .message = "lost the prefill worker"});
      erase(id);
    }
    if (mover_.stores_ourselves(peer->second.transport))
      end_grant(slot_gen);  // its connection is closed: nothing can arrive
  }
  const bool grants_left = std::any_of(
      grants_.begin(), grants_.end(), [&](const auto& entry) { return entry.second.link == link; });
  if (!grants_left) peers_.erase(link);
}

// The process behind this link is dead: nothing of it can write to us any more, over whatever
// connection.
void LandingSide::on_mover(const MoverEvent& event) {
  if (event.kind != MoverEvent::Kind::kPeerDead) return;
  if (const auto peer = peers_.find(event.link); peer != peers_.end()) peer->second.dead = true;
  std::vector<uint64_t> ended;
  for (const auto& [slot_gen, grant] : grants_) {
    if (grant.link == event.link) ended.push_back(slot_gen);
  }
  for (const uint64_t slot_gen : ended) {
    const GrantedPages& grant = grants_.at(slot_gen);
    if (!grant.quarantined) {
      const AttemptId id = grant.id;
      routers_.send(id.id,
                    Failed{.id = id, .retryable = true, .message = "the prefill worker died"});
      erase(id);
    }
    end_grant(slot_gen);
  }
}

// Given up, but the peer may still be writing: nobody gets these pages yet.
void LandingSide::quarantine(uint64_t slot_gen, bool tell_peer) {
  GrantedPages& grant = grants_.at(slot_gen);
  if (grant.quarantined) return;
  grant.quarantined = true;
  grant.since_us = clock_.now_us();
  grant.cached = {};  // only read here, never written by the peer
  for (const auto& group : grant.granted) {
    for (const PageRef& page : group) ledger_.set_state(page, PageState::kQuarantined);
  }
  if (tell_peer) outbox_.send(grant.link, Release{slot_gen});
}

// The peer's last write has ended: the pages go home.
void LandingSide::end_grant(uint64_t slot_gen) {
  const auto it = grants_.find(slot_gen);
  if (it == grants_.end()) return;
  mover_.disallow(slot_gen);
  const LinkId link = it->second.link;
  grants_.erase(it);
  const auto peer = peers_.find(link);
  if (peer == peers_.end() || peer->second.up) return;
  const bool more = std::any_of(grants_.begin(), grants_.end(),
                                [&](const auto& entry) { return entry.second.link == link; });
  if (!more) peers_.erase(peer);
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

int64_t LandingSide::quarantined_age_ms() const {
  int64_t oldest = 0;
  for (const auto& [slot_gen, grant] : grants_) {
    if (grant.quarantined) oldest = std::max(oldest, (clock_.now_us() - grant.since_us) / 1000);
  }
  return oldest;
}

}  // namespace baton
