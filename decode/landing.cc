// The landing side's COMMIT: the digest of the pages where P sends one, then the pages become the
// sequence's own. The only good end of a grant.
#include <algorithm>

#include "base/log.h"
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

std::vector<std::vector<int32_t>> page_ids(const GroupPages& groups) {
  std::vector<std::vector<int32_t>> ids;
  for (const auto& pages : groups) {
    std::vector<int32_t>& row = ids.emplace_back();
    for (const PageRef& page : pages) row.push_back(page.page_id());
  }
  return ids;
}

}  // namespace

// COMMIT is also a DRAINED: whatever comes of it, P writes no more.
void LandingSide::on_commit(LinkId link, Commit commit) {
  const auto it = grants_.find(commit.slot_gen);
  if (it == grants_.end() || it->second.link != link) {
    outbox_.send(link, Ack{.slot_gen = commit.slot_gen, .accepted = false});
    return;
  }
  GrantedPages& grant = it->second;
  if (grant.state == GrantState::kVerifying) return;  // repeated: the first one counts
  Attempt* attempt = find(grant.id);
  const bool wanted = grant.state == GrantState::kGranted && attempt != nullptr;
  const bool fits = wanted && grant.id == commit.id &&
                    commit.token_count == static_cast<int32_t>(attempt->open.tokens.size()) &&
                    well_formed(commit, attempt->open.spec);
  if (!fits) {
    if (wanted) fail(grant.id, "COMMIT does not fit its grant");
    refuse_commit(commit.slot_gen);
    return;
  }
  grant.commit = std::move(commit);
  if (!grant.commit.digest) {
    land(it->first);
    return;
  }
  mover_.disallow(it->first);
  set_state(grant, GrantState::kVerifying);
  mover_.verify(it->first, page_ids(grant.granted), *grant.commit.digest);
}

void LandingSide::on_verified(uint64_t slot_gen, bool intact) {
  const auto it = grants_.find(slot_gen);
  CHECK(it != grants_.end() && it->second.state == GrantState::kVerifying)
      << "grant " << slot_gen << " verified, but not under verification";
  const GrantedPages& grant = it->second;
  if (!intact) {
    ++counts_.digest_mismatches;
    const Peer& peer = peers_.at(grant.link);
    log_error("handoff_digest_mismatch", {{"request", to_string(grant.id)},
                                          {"peer", peer.worker_id},
                                          {"transport", peer.transport},
                                          {"slot_gen", slot_gen}});
    fail(grant.id, "the pages that arrived are not those that were sent");
  }
  if (intact && find(grant.id) != nullptr) {
    land(slot_gen);
  } else {
    refuse_commit(slot_gen);
  }
}

void LandingSide::refuse_commit(uint64_t slot_gen) {
  outbox_.send(grants_.at(slot_gen).link, Ack{.slot_gen = slot_gen, .accepted = false});
  end_grant(slot_gen);
}

void LandingSide::land(uint64_t slot_gen) {
  GrantedPages& pages = grants_.at(slot_gen);
  Attempt& attempt = *find(pages.id);
  std::vector<TokenEvent> first_tokens = std::move(pages.commit.first_tokens);
  const int64_t committed_at_us = clock_.now_us();
  outbox_.send(pages.link, Ack{.slot_gen = slot_gen, .accepted = true});
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
      std::move(landed), first_tokens);
  sequences_[attempt.seq] = attempt.open.id;
  for (const int32_t choice : attempt.cancelled_choices) scheduler_.cancel(attempt.seq, choice);
  // Repeats what P has told the router itself: either path may be lost.
  routers_.send(attempt.open.id.id, Events{std::move(first_tokens)});
  ++counts_.landed;
  log_debug("handoff_committed", {{"request", to_string(pages.id)}, {"at_us", committed_at_us}});
  end_grant(slot_gen);  // its pages are the sequence's
}

}  // namespace baton
