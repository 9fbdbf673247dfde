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

struct ClusterOptions {
  int32_t routers = 1;
  int32_t prefills = 2;
  int32_t decodes = 2;
  int32_t pages = 40;  // of each worker
  int32_t page_tokens = 16;
  int32_t window = 0;     // > 0: a second, sliding-window group
  bool tcp_like = false;  // D stores itself
  int32_t requests = 30;
  double cancel_rate = 0.2;  // cancels in 300 actions
  double copy_rate = 1;      // less: copies take longer
  int32_t kills = 0;         // of workers, at random moments; they come back
  int32_t cuts = 0;          // broken connections
  int32_t stalls = 0;        // a mover stops and goes on
  int32_t router_kills = 0;
  SeededBug bug = SeededBug::kNone;
};

struct RunResult {
  std::vector<std::string> violations;  // empty: all held
  int32_t completed = 0, cancelled = 0, failed = 0;
  int64_t handoffs = 0;
  int64_t digest = 0;  // of everything that happened, for reproducibility
};

// Runs until all requests have ended and everything is quiet again, then checks that nothing is
// left over.
RunResult run_cluster(const ClusterOptions& options, uint64_t seed);

}  // namespace baton::sim
