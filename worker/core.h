// The worker's loop without its waiting: what happens on each event. Owns nothing that computes or
// blocks, so the simulator drives the same code with a fake clock, engine and network. One thread.
#pragma once

#include <unordered_map>

#include "base/clock.h"
#include "base/link.h"
#include "config/config.h"
#include "decode/landing_side.h"
#include "prefill/push_side.h"
#include "scheduler/scheduler.h"
#include "worker/attempts.h"
#include "worker/drain_rate.h"
#include "worker/engine_thread.h"
#include "worker/inbox.h"
#include "worker/router_links.h"
#include "worker/worker_view.h"

namespace baton {

// Counted by the loop, shown by /metrics.
struct WorkerCounters {
  int64_t prompt_tokens = 0;         // computed here
  int64_t prompt_tokens_cached = 0;  // of prompts that are done: not computed, here already
  int64_t generation_tokens = 0;     // sampled here
  int64_t steps = 0;
  int64_t handoffs_landed = 0;
  int64_t digest_mismatches = 0;  // handoffs refused for it
  int64_t stale_messages = 0;  // refused: from a peer that may not send them, or for another layout
  int64_t deadlines_missed = 0;  // attempts ended here because their time was over
  int64_t handed_back = 0;       // attempts given back to their routers, unfinished
  double prefill_tokens_per_s = 0;
  double step_ms = 0;
};

class WorkerCore {
 public:
  struct Parts {
    const KvLayout& layout;
    PageLedger& ledger;
    PrefixCache& prefix_cache;
    Scheduler& scheduler;
    PageMover& mover;
    Outbox& outbox;
    StepRunner& engine;
    const Clock& clock;
    HandoffWatch* watch = nullptr;  // counts handoffs; null: nobody
  };
  WorkerCore(const WorkerConfig& config, PeerInfo self, Parts parts);

  // The loop: handle() each event, then on_timer() and prepare_steps().
  void handle(WorkerEvent event);
  void on_timer();
  void prepare_steps();

  // Takes nothing new, serves what it has; gives back what is left when drain_timeout_ms is about
  // to be over.
  void begin_drain();
  bool drained() const;  // begin_drain() was called and nothing is left to serve
  bool draining() const { return draining_; }
  int64_t drain_since_us() const { return drain_since_us_; }
  // Not empty: the engine or the handoff thread is broken, the process must end.
  const std::string& fatal_error() const { return fatal_error_; }

  WorkerStatus status() const;
  WorkerView view() const;
  PageAges page_ages() const;
  int64_t step_running_us() const;  // how long the engine has been at its step; 0: it has none
  int64_t preemptions() const { return parts_.scheduler.preemptions(); }
  const WorkerCounters& counters() const { return counters_; }
  const PushSide& push_side() const { return push_side_; }
  const LandingSide& landing_side() const { return landing_side_; }

 private:
  void on(LinkUp up);
  void on(LinkDown down);
  void on(LinkMessage message);
  void on_router_message(LinkId link, Message message);
  void on_open(Open open);
  void on_prefill(Prefill prefill);
  // False: the router has been told. Else the attempt and its deadline are known from here on.
  bool accept(const AttemptId& id, const SamplingSpec& spec, int32_t prompt_len,
              const std::vector<TokenId>& tokens);
  void on_prefill_message(LinkId link, Message message);  // from a P to us as D
  void on_decode_message(LinkId link, Message message);   // from a D to us as P
  void on_commit(LinkId link, Commit commit);
  void count_landings();
  void on(StepOutput output);
  void end_sequences(const std::vector<SeqId>& ended);
  void send_events(std::vector<TokenEvent> events);
  void measure(const StepOutput& output);
  void broken(const std::string& error);  // the process must end
  int64_t queued_tokens() const;
  void publish_status();
  bool owes(const AttemptId& id) const;
  void give_up(Failed failed);
  void end_overdue();
  void hand_back(const std::string& why);

  enum class PeerKind : uint8_t { kRouter, kPrefill, kDecode };

  const WorkerConfig config_;
  const PeerInfo self_;
  Parts parts_;
  RouterLinks routers_;
  PushSide push_side_;
  LandingSide landing_side_;
  std::unordered_map<LinkId, PeerKind> peers_;
  Attempts attempts_;
  struct StepSize {
    int64_t prefill_tokens = 0;
    int64_t decodes = 0;
    int64_t context_tokens = 0;  // of all decodes together
  };
  std::deque<StepSize> steps_in_flight_;
  int64_t step_begun_us_ = 0;  // the first of them
  WorkerCounters counters_;
  DrainRate drain_rate_;
  WorkerStatus last_status_;
  int64_t last_status_us_ = 0;
  bool draining_ = false;
  int64_t drain_since_us_ = 0;
  std::string fatal_error_;
};

}  // namespace baton
