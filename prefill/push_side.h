// P's side of the handoff: one state machine per attempt, from PREFILL to ACK. docs/protocol.md has
// the picture. Owned by the worker's loop: every function is a call from there, none blocks. Time
// comes in through `clock` and on_timer.
//
//   queued ──► reserving ──► granted ──► prefilling ──► transferring ──► committed ──► (gone)
//     ▲            │FULL/GONE    │             │               │
//     └─ next ─────┘             └──── cancel, RELEASE, link lost ──► draining ──DRAINED──► (gone)
//
// The last copy may end while the prompt's last step is computed: then prefilling goes straight to
// committed, and draining is over at once.
//
// Who holds what: queued and reserving hold nothing. granted holds D's pages. From prefilling on
// also our own pages: they are given back when the mover says that the last copy has ended (kDone,
// kAborted, kFailed), never before.
#pragma once

#include <array>
#include <cstdint>
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
#include "prefill/handoff_watch.h"
#include "scheduler/fair_order.h"
#include "scheduler/scheduler.h"
#include "worker/handoff_view.h"
#include "worker/router_links.h"

namespace baton {

// What the router is told of an attempt that another worker may still bring to its end.
inline Failed failed(const AttemptId& id, std::string message) {
  return {.id = id, .retryable = true, .message = std::move(message)};
}

class PushSide {
 public:
  PushSide(const PrefillConfig& config, int64_t attach_timeout_ms, int32_t priority_tokens,
           const KvLayout& layout, Scheduler& scheduler, const PrefixCache& prefix_cache,
           PageMover& mover, Outbox& outbox, RouterLinks& routers, const Clock& clock,
           HandoffWatch* watch = nullptr);  // null: nobody counts

  // From the router.
  void on_prefill(Prefill prefill);
  void on_cancel(const AttemptId& id);
  void on_router_lost(Epoch router_epoch);

  // From decode workers.
  void on_decode_up(LinkId link, const PeerInfo& peer);
  void on_link_down(LinkId link);
  void on_offer(LinkId link, const Attach& offer);
  void on_grant(LinkId link, Grant grant);
  void on_refuse(LinkId link, const Refuse& refuse);
  void on_ack(LinkId link, const Ack& ack);
  void on_release(LinkId link, const Release& release);

  // From our own scheduler and mover.
  void on_started(const PromptStarted& started);
  // `step` is about to compute the prompt's end.
  void on_last_step(SeqId seq, uint64_t step);
  // `computed_at_us`: StepOutput's.
  void on_prompt_done(PromptDone done, int64_t computed_at_us = 0);
  void on_ended(SeqId seq);
  void on_mover(const MoverEvent& event);
  void on_timer();

  bool idle() const { return handoffs_.empty() && grants_.empty(); }
  size_t size() const { return handoffs_.size(); }
  int64_t queued_tokens() const;                 // of prompts that the scheduler does not know yet
  const char* stage(const AttemptId& id) const;  // "" if unknown
  std::vector<HandoffView> views() const;

 private:
  enum class State : uint8_t {
    kQueued,
    kReserving,
    kGranted,
    kPrefilling,
    kTransferring,
    kCommitted,
    kDraining,
    kLocal
  };
  static constexpr size_t kStates = 8;

  struct Handoff {
    AttemptId id;
    Prefill prefill;
    Place place;  // among the prompts of all routers
    State state = State::kQueued;
    size_t candidate = 0;  // index into prefill.candidates of the one being asked
    bool any_full = false;
    int32_t retry_after_ms = 0;
    bool cancelled = false;  // while reserving: the answer still comes
    LinkId link = 0;         // to D
    uint64_t slot_gen = 0;
    TransferId transfer = 0;  // != 0 from granted on
    SeqId seq = 0;
    std::array<int64_t, kStates> entered_us{};  // by state
    int64_t push_bytes = 0;                     // of the pages granted
    bool copied = false;  // the last copy has ended, mostly before the prompt's last step has
    std::optional<PagesDigest> digest;  // then; where it is wanted
    int64_t computed_at_us = 0;         // the last of it
    GroupPages pages;                   // ours, held until the last copy has ended
    std::vector<TokenEvent> first_tokens;

    int64_t entered(State which) const { return entered_us[static_cast<size_t>(which)]; }
    int64_t since_us() const { return entered(state); }
  };

  struct DecodePeer {
    LinkId link = 0;  // 0 = no connection now
    bool attached = false;
    bool attach_failed = false;
    std::string error;
    std::string transport;  // while attached
    double gbps = 0, latency_us = 0;
    int64_t wanted_since_us = 0;  // without a usable link; 0 = it has one, or nobody has asked
    int64_t used_us = 0;          // a handoff named it
    std::vector<LinkId>
        detaching;  // links given to the mover and not yet detached: copies may be under way
  };

  Handoff* find(const AttemptId& id);
  Handoff* by_transfer(TransferId transfer);
  Handoff* by_grant(LinkId link, uint64_t slot_gen);
  void enter(Handoff& handoff, State state);
  void start_local(Handoff& handoff);
  void enqueue(const Handoff& handoff) { queue_.emplace(handoff.place.order, handoff.id); }
  static const char* name_of(State state);
  void pump();    // queued -> reserving, as far as reserve_ahead allows
  struct Ahead {  // RESERVEs and GRANTs that have not begun
    int32_t total = 0;
    std::map<std::string, int32_t> of_peer;
  };
  bool has_share(const std::string& name, const Ahead& ahead) const;
  bool ask_candidate(Handoff& handoff, Ahead& ahead);
  void send_reserve(Handoff& handoff, const DecodePeer& peer);
  bool next_candidate(Handoff& handoff, const std::string& why);
  void refuse_or_fail(const AttemptId& id, const Status& status);
  void stop(Handoff& handoff);     // gives back what is held, at once or by way of draining
  void drained(Handoff& handoff);  // the last copy has ended: DRAINED to D, pages home
  void commit(Handoff& handoff);
  void tell_landed(const Handoff& handoff) const;
  void erase(const AttemptId& id);
  void on_mover_link(const MoverEvent& event);
  void lost_decode(Handoff& handoff);
  void tell_peers() const;
  std::string transport_of(LinkId link) const;
  double seconds_since(int64_t us) const {
    return static_cast<double>(clock_.now_us() - us) * 1e-6;
  }
  void maybe_drained_all(DecodePeer& peer);
  void forget_peers();  // those that no handoff has named for long: addresses change
  template <typename Predicate>
  std::vector<AttemptId> ids_where(Predicate predicate) const {
    std::vector<AttemptId> ids;
    for (const auto& [id, handoff] : handoffs_) {
      if (predicate(handoff)) ids.push_back(id);
    }
    return ids;
  }

  // Constant after construction.
  const PrefillConfig config_;
  const int64_t attach_timeout_us_;
  const KvLayout& layout_;
  Scheduler& scheduler_;
  const PrefixCache& prefix_cache_;
  PageMover& mover_;
  Outbox& outbox_;
  RouterLinks& routers_;
  const Clock& clock_;
  HandoffWatch* const watch_;

  std::map<AttemptId, Handoff> handoffs_;
  FairOrder fair_order_;
  std::set<std::pair<int64_t, AttemptId>> queue_;  // in state queued, by their place's order
  std::unordered_map<TransferId, AttemptId> transfers_;
  std::map<std::pair<LinkId, uint64_t>, AttemptId> grants_;  // (link, slot_gen)
  std::unordered_map<SeqId, AttemptId> sequences_;
  std::map<std::string, DecodePeer> peers_;  // by worker id
  std::unordered_map<LinkId, std::string> peer_of_link_;
  TransferId next_transfer_ = 1;
};

}  // namespace baton
