// A whole Baton in one thread: the real router core, workers and handoff state machines over a
// simulated network, engine, clock and copying, with faults. One seed, one run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/loopback.h"
#include "router/dispatcher.h"
#include "tests/sim/engine.h"
#include "tests/sim/network.h"
#include "tests/sim/random.h"
#include "tests/sim/seeded_bug.h"
#include "worker/core.h"

namespace baton::sim {

// What strikes at a message: just before it would be delivered.
enum class Strike : uint8_t {
  kLose,          // it is lost, with its connection
  kCancel,        // its client, if it waits alone, else any, goes away
  kKillSender,    // after it has been delivered
  kKillReceiver,  // before it is
  kStopSender,    // SIGSTOP after it; SIGCONT some time later
};
struct Trigger {
  std::string message;  // as in message_name()
  Strike strike = Strike::kLose;
  double share = 0.3;  // of those messages
  int32_t times = 4;   // at most
};

// What the clients ask for.
struct Workload {
  int32_t requests = 30;
  int32_t concurrent_max = 1000;
  int32_t prompt_min = 1, prompt_max = 100;
  int32_t large_every = 0, large_tokens = 300;  // each so-manieth prompt is a large one
  bool large_fits = true;                       // else it must be answered with an error
  int32_t n = 0;                                // choices; 0: mostly 1
  int32_t max_tokens = 0;                       // 0: up to 40, some 1
  int32_t eos_tokens = 1;                       // of the vocabulary's 50 that end a choice
  double second_turn_share = 0;  // after its answer the client comes back with one more question
};

struct ClusterOptions {
  int32_t routers = 1;
  int32_t prefills = 2;
  int32_t decodes = 2;
  int32_t pages = 40;  // of each worker
  int32_t page_tokens = 16;
  int32_t window = 0;     // > 0: a second, sliding-window group
  bool tcp_like = false;  // D stores itself
  Workload load;
  double cancel_rate = 0.2;  // cancels in 300 actions
  double copy_rate = 1;      // less: copies take longer
  int32_t kills = 0;         // of workers, at random moments; they come back
  int32_t cuts = 0;          // broken connections
  int32_t stalls = 0;        // a mover stops and goes on
  int32_t router_kills = 0;
  int32_t stops = 0;            // a whole worker does; its peers miss it meanwhile
  int32_t restarts_of_one = 0;  // kills of always the same worker
  bool kill_between_turns_prefill = false, kill_between_turns_decode = false;
  bool two_kinds = false;  // the last worker of each role has another kv_compat_id
  bool digest = false;
  FaultPlan transport;  // its seed is the run's
  FrameFaults frames;
  std::vector<Trigger> triggers;
  SeededBug bug = SeededBug::kNone;
};

struct RunResult {
  std::vector<std::string> violations;  // empty: all held
  int32_t completed = 0, cancelled = 0, refused = 0, failed = 0;
  int64_t handoffs = 0;
  std::map<std::string, int64_t> seen;  // messages by name, and what else scenarios must show
  int64_t digest = 0;                   // of everything that happened, for reproducibility
};

// Runs until all requests have ended and everything is quiet again, then checks that nothing is
// left over.
RunResult run_cluster(const ClusterOptions& options, uint64_t seed);

}  // namespace baton::sim
