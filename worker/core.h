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
#include "worker/engine_thread.h"
#include "worker/inbox.h"
#include "worker/router_links.h"

namespace baton {

// Counted by the loop, shown by /metrics.
struct WorkerCounters {
  int64_t prompt_tokens = 0;      // computed here
  int64_t generation_tokens = 0;  // sampled here
  int64_t steps = 0;
  int64_t handoffs_landed = 0;
  int64_t stale_messages = 0;  // refused: from a peer that may not send them, or for another layout
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
  };
  WorkerCore(const WorkerConfig& config, PeerInfo self, Parts parts);

  // The loop: handle() each event, then on_timer() and prepare_steps().
  void handle(WorkerEvent event);
  void on_timer();
  void prepare_steps();

  void begin_drain();
  bool drained() const;  // begin_drain() was called and nothing is left
  bool draining() const { return draining_; }
  const std::string& fatal_error() const {
    return fatal_error_;
  }  // not empty: the engine is broken, the process must end

  WorkerStatus status() const;
  const WorkerCounters& counters() const { return counters_; }
  const PushSide& push_side() const { return push_side_; }
  const LandingSide& landing_side() const { return landing_side_; }

 private:
  void on(LinkUp up);
  void on(LinkDown down);
  void on(LinkMessage message);
  void on_router_message(LinkId link, Message message);
  bool acceptable(const AttemptId& id, const SamplingSpec& spec, int32_t prompt_len,
                  const std::vector<TokenId>& tokens);    // false: the router has been told
  void on_prefill_message(LinkId link, Message message);  // from a P to us as D
  void on_decode_message(LinkId link, Message message);   // from a D to us as P
  void on_commit(LinkId link, Commit commit);
  void on(StepOutput output);
  void end_sequences(const std::vector<SeqId>& ended);
  void send_events(std::vector<TokenEvent> events);
  void measure(const StepOutput& output);
  void publish_status();

  enum class PeerKind : uint8_t { kRouter, kPrefill, kDecode };

  const WorkerConfig config_;
  const PeerInfo self_;
  Parts parts_;
  RouterLinks routers_;
  PushSide push_side_;
  LandingSide landing_side_;
  std::unordered_map<LinkId, PeerKind> peers_;
  struct StepSize {
    int64_t prefill_tokens = 0;
    int64_t decodes = 0;
  };
  std::deque<StepSize> steps_in_flight_;
  WorkerCounters counters_;
  WorkerStatus last_status_;
  int64_t last_status_us_ = 0;
  bool draining_ = false;
  std::string fatal_error_;
};

}  // namespace baton
