#include "decode/landing_side.h"

#include <algorithm>

namespace baton {

LandingSide::LandingSide(const DecodeConfig& config, int32_t priority_tokens,
                         const KvLayout& layout, Scheduler& scheduler, PageLedger& ledger,
                         PrefixCache& prefix_cache, PageMover& mover, Outbox& outbox,
                         RouterLinks& routers, const Clock& clock)
    : config_(config),
      layout_(layout),
      scheduler_(scheduler),
      ledger_(ledger),
      prefix_cache_(prefix_cache),
      mover_(mover),
      outbox_(outbox),
      routers_(routers),
      clock_(clock),
      fair_order_(priority_tokens) {}

// ---- from the router ----

void LandingSide::on_open(Open open) {
  const AttemptId id = open.id;
  if (cancelled_.count(id) != 0 || attempts_.count(id) != 0) return;
  const Status fits =
      scheduler_.check(open.spec, open.prompt_len, open.tokens.size(), /*pushed=*/false);
  if (!fits.ok()) {
    routers_.send(id.id, Failed{.id = id, .retryable = false, .message = fits.message()});
    return;
  }
  if (attempts_.size() >= static_cast<size_t>(config_.open_max)) {
    routers_.send(
        id.id,
        Refused{.id = id, .retry_after_ms = config_.retry_after_ms, .reason = "too many requests"});
    return;
  }
  const bool local = open.local;
  if (local) starving_.erase(id.id);
  attempts_[id] = Attempt{.open = std::move(open), .since_us = clock_.now_us()};
  if (local) {
    start_local(id);
  } else if (auto pending = pending_.extract(id)) {
    decide(pending.mapped().link, pending.mapped().reserve);
  }
}

void LandingSide::start_local(const AttemptId& id) {
  Attempt& attempt = attempts_.at(id);
  const Open& open = attempt.open;
  auto seq = scheduler_.add_prompt({id, open.spec, open.prompt_len, open.tokens}, std::nullopt);
  if (seq.ok()) {
    attempt.state = State::kDecoding;
    attempt.seq = *seq;
    sequences_[*seq] = id;
    for (const int32_t choice : attempt.cancelled_choices) scheduler_.cancel(*seq, choice);
    return;
  }
  const Status& status = seq.status();
  if (status.code() == Code::kResourceExhausted) {
    routers_.send(
        id.id,
        Refused{.id = id, .retry_after_ms = config_.retry_after_ms, .reason = status.message()});
  } else {
    routers_.send(id.id, Failed{.id = id, .retryable = false, .message = status.message()});
  }
  erase(id);
}

void LandingSide::on_cancel(const AttemptId& id, int32_t choice) {
  if (choice < 0) {
    cancel(id);
    return;
  }
  Attempt* attempt = find(id);
  if (attempt == nullptr) return;
  if (attempt->state == State::kDecoding) {
    scheduler_.cancel(attempt->seq, choice);
  } else {
    attempt->cancelled_choices.insert(choice);
  }
}

void LandingSide::on_close(const AttemptId& id) {
  starving_.erase(id.id);
  kept_prefixes_.erase(id.id);
  cancel(id);
}

void LandingSide::cancel(const AttemptId& id) {
  if (Attempt* attempt = find(id)) {
    if (attempt->state == State::kDecoding) scheduler_.cancel(attempt->seq);
    if (attempt->state == State::kGranted) quarantine(attempt->slot_gen, /*tell_peer=*/true);
    erase(AttemptId(id));
  }
  remember_cancelled(id);
}

// P's RESERVE may still be under way, over another link than the router's.
void LandingSide::remember_cancelled(const AttemptId& id) {
  if (cancelled_.size() < static_cast<size_t>(config_.cancel_memory_max)) {
    cancelled_[id] = clock_.now_us() + 2 * config_.open_wait_ms * 1000;
  }
  if (auto pending = pending_.extract(id)) refuse(pending.mapped().link, id, Refuse::Kind::kGone);
}

void LandingSide::on_router_lost(Epoch router_epoch) {
  std::vector<AttemptId> ids;
  for (const auto& [id, attempt] : attempts_) {
    if (id.id.router_epoch == router_epoch) ids.push_back(id);
  }
  for (const AttemptId& id : ids) cancel(id);
  const auto of_router = [&](const auto& entry) {
    return entry.first.router_epoch == router_epoch;
  };
  std::erase_if(starving_, of_router);
  std::erase_if(kept_prefixes_, of_router);
}

// ---- RESERVE: LOCAL, FULL, GONE or a grant, at once ----

void LandingSide::on_reserve(LinkId link, Reserve reserve) {
  if (is_dead(link)) return;
  const AttemptId id = reserve.id;
  if (cancelled_.count(id) != 0 || pending_.size() >= static_cast<size_t>(config_.open_max)) {
    refuse(link, id, Refuse::Kind::kGone);
  } else if (attempts_.count(id) == 0) {
    pending_[id] = PendingReserve{link, std::move(reserve), clock_.now_us()};
  } else {
    decide(link, reserve);
  }
}

void LandingSide::decide(LinkId link, const Reserve& reserve) {
  if (is_dead(link)) return;
  Attempt& attempt = *find(reserve.id);
  if (attempt.state != State::kOpen || reserve.pages_per_group.size() != layout_.groups.size()) {
    refuse(link, reserve.id, Refuse::Kind::kGone);  // asked twice, or with another layout
    return;
  }
  const auto prompt_tokens = static_cast<int32_t>(attempt.open.tokens.size());
  PrefixHit hit =
      prefix_cache_.match(attempt.open.tokens, prompt_tokens - 1, attempt.open.spec.cache_salt);
  kept_prefixes_.erase(reserve.id.id);  // the hit holds these pages now
  const std::vector<int32_t> pages = pages_wanted(attempt, hit.tokens);
  if (better_local(attempt, reserve, hit.tokens, pages)) {
    hit = {};
    refuse(link, reserve.id, Refuse::Kind::kLocal);
    starving_.erase(reserve.id.id);
    start_local(reserve.id);
  } else if (!has_room(attempt, pages, link)) {
    starve(attempt);
    refuse(link, reserve.id, Refuse::Kind::kFull);
  } else {
    if (const auto starved = starving_.extract(reserve.id.id)) {
      fair_order_.serve(starved.mapped().place);
    }
    grant(link, attempt, std::move(hit), pages);
  }
}

// It keeps the place that it gets with its first FULL.
void LandingSide::starve(const Attempt& attempt) {
  const Open& open = attempt.open;
  if (starving_.empty()) fair_order_.reset();
  const auto [it, first] = starving_.try_emplace(open.id.id);
  Starving& starving = it->second;
  starving.asked_us = clock_.now_us();
  if (!first) return;
  starving.since_us = starving.asked_us;
  starving.place =
      fair_order_.place(open.id.id.router_epoch, open.spec.priority, std::ssize(open.tokens));
}

void LandingSide::refuse(LinkId link, const AttemptId& id, Refuse::Kind kind) {
  counts_.add(kind);
  outbox_.send(link, Refuse{.id = id, .kind = kind, .retry_after_ms = config_.retry_after_ms});
}

// The prompt's uncached pages; has_room() adds a growth page a choice.
std::vector<int32_t> LandingSide::pages_wanted(const Attempt& attempt,
                                               int32_t cached_tokens) const {
  std::vector<int32_t> pages;
  for (const KvGroup& group : layout_.groups) {
    const int32_t first =
        landing_start(group, static_cast<int32_t>(attempt.open.tokens.size()), cached_tokens);
    pages.push_back(group.pages_for(static_cast<int32_t>(attempt.open.tokens.size())) -
                    first / group.page_tokens);
  }
  return pages;
}

// What is short, or mostly cached here and not there, costs less to compute here than to move. So
// does what is larger than any peer may ever land.
bool LandingSide::better_local(const Attempt& attempt, const Reserve& reserve,
                               int32_t cached_tokens, const std::vector<int32_t>& pages) const {
  const auto prompt_tokens = static_cast<int32_t>(attempt.open.tokens.size());
  const int32_t ours = prompt_tokens - cached_tokens;
  const int32_t theirs = prompt_tokens - std::clamp(reserve.cached_tokens, 0, prompt_tokens);
  if (ours <= config_.local_prefill_tokens) return true;
  if (ours < theirs && ours <= config_.local_prefill_ratio * theirs) return true;
  for (size_t g = 0; g < pages.size(); ++g) {
    const double share = config_.max_granted_share *
                         static_cast<double>(ledger_.counts(static_cast<int32_t>(g)).total);
    if (pages[g] > share) return true;
  }
  return false;
}

bool LandingSide::has_room(const Attempt& attempt, const std::vector<int32_t>& pages,
                           LinkId link) const {
  if (scheduler_.preempted_waiting()) return false;
  const int64_t now = clock_.now_us();
  const auto own = starving_.find(attempt.open.id.id);
  const int64_t patience_us = config_.reserve_starve_ms * 1000;
  for (const auto& [id, other] :
       starving_) {  // one before it that starves goes first, as long as somebody asks for it
    if (id == attempt.open.id.id || now - other.since_us < patience_us ||
        now - other.asked_us > patience_us)
      continue;
    const bool first = own == starving_.end() || other.place.order < own->second.place.order;
    if (first) return false;
  }
  for (size_t g = 0; g < pages.size(); ++g) {
    const auto group = static_cast<int32_t>(g);
    const auto total = static_cast<double>(ledger_.counts(group).total);
    // Growth of those that run, and the oldest prompt of our own that waits: landings must not
    // starve it.
    const int32_t headroom = config_.headroom_pages * scheduler_.growth_pages_wanted(group) +
                             scheduler_.head_pages_wanted(group);
    if (ledger_.available(group) < pages[g] + attempt.open.spec.n + headroom) return false;
    if (landing_pages(group, worker_of(link)) + pages[g] > config_.max_granted_share * total)
      return false;
    if (landing_pages(group, "") + pages[g] > config_.max_landing_share * total) return false;
  }
  return true;
}

void LandingSide::grant(LinkId link, Attempt& attempt, PrefixHit hit,
                        const std::vector<int32_t>& pages) {
  ++counts_.granted;
  const uint64_t slot_gen = next_slot_gen_++;
  const auto prompt_tokens = static_cast<int32_t>(attempt.open.tokens.size());
  Grant grant{
      .id = attempt.open.id, .slot_gen = slot_gen, .cached_tokens = hit.tokens, .groups = {}};
  GrantedPages granted{.id = attempt.open.id, .link = link, .since_us = clock_.now_us()};
  std::vector<std::vector<int32_t>> allowed;
  for (size_t g = 0; g < pages.size(); ++g) {
    GrantGroup group{.first_token = landing_start(layout_.groups[g], prompt_tokens, hit.tokens),
                     .page_ids = {}};
    granted.granted.push_back(ledger_.take(static_cast<int32_t>(g), pages[g], PageState::kGranted));
    CHECK_EQ(granted.granted.back().size(), static_cast<size_t>(pages[g]))
        << "has_room() had promised them";
    for (const PageRef& page : granted.granted.back()) group.page_ids.push_back(page.page_id());
    allowed.push_back(group.page_ids);
    grant.groups.push_back(std::move(group));
  }
  granted.cached = std::move(hit);
  grants_.emplace(slot_gen, std::move(granted));
  attempt.state = State::kGranted;
  attempt.slot_gen = slot_gen;
  mover_.allow(link, slot_gen, allowed);
  outbox_.send(link, std::move(grant));
}

// ---- our own sequences ----

void LandingSide::on_prompt_done(const PromptDone& done) {
  if (sequences_.count(done.seq) != 0) {
    routers_.send(done.id.id, Usage{.id = done.id, .cached_tokens = done.cached_tokens});
  }
}

void LandingSide::on_ended(SeqId seq) {
  const auto it = sequences_.find(seq);
  if (it != sequences_.end()) erase(AttemptId(it->second));
}

void LandingSide::on_timer() {
  const int64_t now = clock_.now_us();
  std::vector<AttemptId> unknown;
  for (const auto& [id, pending] : pending_) {
    if (now - pending.since_us > config_.open_wait_ms * 1000) unknown.push_back(id);
  }
  for (const AttemptId& id : unknown)
    refuse(pending_.extract(id).mapped().link, id, Refuse::Kind::kGone);

  std::vector<uint64_t> late;
  for (const auto& [slot_gen, grant] : grants_) {
    const bool waits = grant.state == GrantState::kGranted;
    if (waits && now - grant.since_us > config_.grant_ttl_ms * 1000) late.push_back(slot_gen);
  }
  for (const uint64_t slot_gen : late)
    give_up(slot_gen, "the prompt's pages did not arrive in time", /*tell_peer=*/true);
  std::erase_if(kept_prefixes_, [&](const auto& entry) { return entry.second.until_us < now; });
  std::erase_if(cancelled_, [&](const auto& entry) { return entry.second < now; });
  std::erase_if(starving_, [&](const auto& entry) {
    return now - entry.second.asked_us > 10 * config_.reserve_starve_ms * 1000;
  });
}

// ---- bookkeeping ----

LandingSide::Attempt* LandingSide::find(const AttemptId& id) {
  const auto it = attempts_.find(id);
  return it == attempts_.end() ? nullptr : &it->second;
}

void LandingSide::fail(const AttemptId& id, const std::string& why) {
  if (find(id) == nullptr) return;
  routers_.send(id.id, Failed{.id = id, .retryable = true, .message = why});
  erase(AttemptId(id));
}

void LandingSide::erase(const AttemptId& id) {
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) return;
  sequences_.erase(it->second.seq);
  attempts_.erase(it);
}

const char* LandingSide::stage(const AttemptId& id) const {
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) return "";
  switch (it->second.state) {
    case State::kOpen:
      return "queued";
    case State::kGranted:
      return "granted";
    case State::kDecoding:
      return scheduler_.stage(it->second.seq);
  }
  return "";
}

}  // namespace baton
