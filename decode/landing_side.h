// D's side of the handoff: one state machine per attempt, from OPEN to the last token, and one per
// grant. docs/protocol.md has the picture. Owned by the worker's loop: every function is a call
// from there, none blocks.
//
//   attempt:  open ──RESERVE──► granted ──COMMIT──► decoding ──► (gone)
//              │ └─LOCAL / local─────────────────────►▲
//   grant:    granted ──COMMIT──► (verifying, if there is a digest) ──► used by the sequence
//                │ timer, cancel, lost link
//                └──► quarantined ──COMMIT, DRAINED, DRAINED_ALL, proof of death──► free
//
// A granted or quarantined page is referenced by its grant here, so nobody else can be given it; it
// leaves only by those four ways. While it is verified the handoff thread reads it, P and the
// engine do not touch it.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/link.h"
#include "base/messages.h"
#include "config/config.h"
#include "kvtransfer/page_mover.h"
#include "scheduler/fair_order.h"
#include "scheduler/scheduler.h"
#include "worker/handoff_view.h"
#include "worker/router_links.h"

namespace baton {

class LandingSide {
 public:
  LandingSide(const DecodeConfig& config, int32_t priority_tokens, const KvLayout& layout,
              Scheduler& scheduler, PageLedger& ledger, PrefixCache& prefix_cache, PageMover& mover,
              Outbox& outbox, RouterLinks& routers, const Clock& clock);

  // From the router.
  void on_open(Open open);
  void on_cancel(const AttemptId& id, int32_t choice);
  void on_close(const AttemptId& id);  // placed elsewhere
  void on_router_lost(Epoch router_epoch);

  // From prefill workers.
  void on_prefill_up(LinkId link, const PeerInfo& peer);
  void on_link_down(LinkId link);
  void on_attached(LinkId link, const Attach& attach);
  void on_reserve(LinkId link, Reserve reserve);
  void on_commit(LinkId link, Commit commit);
  void on_drained(LinkId link, const Drained& drained);
  void on_drained_all(LinkId link);

  // From our own scheduler and mover.
  void on_prompt_done(const PromptDone& done);
  void on_ended(SeqId seq);
  void on_mover(const MoverEvent& event);
  void on_timer();

  struct Counts {
    int64_t landed = 0;
    int64_t digest_mismatches = 0;
    // Answers to RESERVE.
    int64_t granted = 0, full = 0, local = 0, gone = 0;
    void add(Refuse::Kind kind) {
      ++(kind == Refuse::Kind::kFull ? full : kind == Refuse::Kind::kLocal ? local : gone);
    }
  };
  const Counts& counts() const { return counts_; }
  bool idle() const { return attempts_.empty() && grants_.empty(); }
  const char* stage(const AttemptId& id) const;  // "" if unknown
  size_t size() const { return attempts_.size(); }
  std::vector<HandoffView> attempt_views() const;
  std::vector<HandoffView> grant_views() const;
  // Of the oldest grant whose pages are in this state (kGranted, kQuarantined), 0 if there is none.
  int64_t oldest_grant_us(PageState state) const;

 private:
  enum class State : uint8_t { kOpen, kGranted, kDecoding };
  enum class GrantState : uint8_t { kGranted, kVerifying, kQuarantined };

  struct Attempt {
    Open open;
    State state = State::kOpen;
    uint64_t slot_gen = 0;
    SeqId seq = 0;
    int64_t since_us = 0;
    std::set<int32_t> cancelled_choices;  // before they decode
  };

  struct PendingReserve {  // it has overtaken its OPEN
    LinkId link = 0;
    Reserve reserve;
    int64_t since_us = 0;
  };

  struct Peer {
    std::string worker_id;
    Epoch epoch = 0;
    std::string transport;
    bool up = true;
    bool dead = false;  // its process: nothing of it will come, LinkDown follows
  };

  struct Starving {  // a request that has been answered FULL
    Place place;     // among the requests of all routers
    int64_t since_us = 0;
    int64_t asked_us = 0;  // last time
  };

  // Pages that a peer may write to.
  struct GrantedPages {
    AttemptId id;
    LinkId link = 0;
    GrantState state = GrantState::kGranted;
    int64_t since_us = 0;  // when this state began
    PrefixHit cached;      // our own prefix, pinned
    GroupPages granted;    // per kv_group, following `cached`
    Commit commit;         // while it is verified
  };

  Attempt* find(const AttemptId& id);
  void starve(const Attempt& attempt);
  void start_local(const AttemptId& id);
  void refuse(LinkId link, const AttemptId& id, Refuse::Kind kind);
  void decide(LinkId link, const Reserve& reserve);
  bool better_local(const Attempt& attempt, const Reserve& reserve, int32_t cached_tokens,
                    const std::vector<int32_t>& pages) const;
  bool has_room(const Attempt& attempt, const std::vector<int32_t>& pages, LinkId link) const;
  std::vector<int32_t> pages_wanted(const Attempt& attempt, int32_t cached_tokens) const;
  void grant(LinkId link, Attempt& attempt, PrefixHit hit, const std::vector<int32_t>& pages);
  void on_verified(uint64_t slot_gen, bool intact);
  void on_peer_dead(LinkId link);
  void on_stores_ended(LinkId link, const std::string& transport);
  void land(uint64_t slot_gen);
  void refuse_commit(uint64_t slot_gen);
  std::vector<uint64_t> writable_grants_of(LinkId link) const;
  void give_up(uint64_t slot_gen, const std::string& why, bool tell_peer);
  void set_state(GrantedPages& grant, GrantState state);
  static const char* name_of(GrantState state);
  void fail(const AttemptId& id, const std::string& why);  // and forget it; unknown: nothing
  void forget_if_gone(LinkId link);
  void quarantine(uint64_t slot_gen, bool tell_peer);
  void end_grant(uint64_t slot_gen);
  void erase(const AttemptId& id);
  void cancel(const AttemptId& id);
  void remember_cancelled(const AttemptId& id);
  bool is_dead(LinkId link) const;
  int64_t landing_pages(int32_t group, const std::string& worker_id) const;  // "" = of all peers
  const std::string& worker_of(LinkId link) const;

  // Constant after construction.
  const DecodeConfig config_;
  const KvLayout& layout_;
  Scheduler& scheduler_;
  PageLedger& ledger_;
  PrefixCache& prefix_cache_;
  PageMover& mover_;
  Outbox& outbox_;
  RouterLinks& routers_;
  const Clock& clock_;

  std::map<AttemptId, Attempt> attempts_;
  std::map<uint64_t, GrantedPages> grants_;  // by slot_gen
  std::map<AttemptId, PendingReserve> pending_;
  std::unordered_map<SeqId, AttemptId> sequences_;
  std::map<LinkId, Peer> peers_;  // links of prefill workers, kept while grants of theirs live
  std::map<RequestId, Starving>
      starving_;  // over all attempts: a request that was answered FULL keeps its place
  std::map<AttemptId, int64_t>
      cancelled_;         // until when (us) a cancel that may have overtaken its OPEN is remembered
  FairOrder fair_order_;  // of those in starving_
  struct KeptPrefix {
    PrefixHit pages;
    int64_t until_us = 0;
  };
  std::map<RequestId, KeptPrefix> kept_prefixes_;  // of requests whose P was lost
  Counts counts_;
  uint64_t next_slot_gen_ = 1;
};

}  // namespace baton
