// The simulated processes: a router with its clients, and a worker. Each has an inbox, as the real
// ones do.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kvtransfer/loopback.h"
#include "router/dispatcher.h"
#include "tests/sim/engine.h"
#include "tests/sim/network.h"
#include "tests/sim/seeded_bug.h"
#include "worker/core.h"

namespace baton::sim {

// One client request and what its client has received.
struct Client final : public GenerationSink {
  GenerationRequest request;
  GenerationId id = 0;
  std::vector<std::vector<TokenId>> received;  // per choice
  std::vector<FinishReason> finished;
  bool cancelled = false;
  bool must_fail = false;  // larger than any pool
  std::string error;

  bool on_token(int32_t prompt_index, const TokenEvent& event) override;
  void on_prompt_logprobs(int32_t, const PromptLogprobs&) override {}
  void on_cached_tokens(int32_t, int32_t) override {}
  void on_failed(int32_t, const Status& status) override { error = status.to_string(); }

  bool complete() const;
  bool over() const { return cancelled || !error.empty() || complete(); }
  std::string wrong() const;  // empty: what was received is a start of (or, when complete, equals)
                              // the undisturbed text
};

struct SimRouter {
  SimRouter(Network& network, const Clock& clock, Epoch epoch,
            const std::vector<std::string>& workers);

  bool handle_one();
  void submit(const std::shared_ptr<Client>& client);

  std::deque<LinkEvent> inbox;
  RouteConfig config;
  RouterMetrics metrics;
  Placement placement;
  Endpoint endpoint;
  Dispatcher dispatcher;
  std::vector<std::shared_ptr<Client>> clients;
};

struct WorkerShape {
  Role role = Role::kBoth;
  std::string address;
  int32_t pages = 40;
  bool tcp_like = false;
  bool digest = false;
  std::optional<FaultPlan> faults;  // of what it pushes
  std::string kv_compat_id = "sim";
  SeededBug bug = SeededBug::kNone;
};

struct SimWorker {
  SimWorker(Network& network, LoopbackFabric& fabric, const KvLayout& layout, const Clock& clock,
            Epoch epoch, const WorkerShape& shape, std::vector<std::string>& violations);
  ~SimWorker() { mover.kill(); }

  bool handle_one();
  bool end_step();
  void set_stopped(bool stop);    // SIGSTOP, SIGCONT
  std::string left_over() const;  // empty: idle, and every page is free or cached
  void check_sums(std::vector<std::string>& violations) const;

  const WorkerShape shape;
  bool stopped = false;
  WorkerConfig config;
  std::deque<WorkerEvent> inbox;
  const KvLayout layout;
  std::vector<std::unique_ptr<PagePool>> pools;
  LoopbackMover mover;
  EagerMover front;  // what the core sees of the mover
  PageLedger ledger;
  PrefixCache prefix_cache;
  Scheduler scheduler;
  SimEngine engine;
  Endpoint endpoint;
  WorkerCore core;

 private:
  void seed_bug();
  void seed_bug(LinkMessage& message);
  std::map<LinkId, uint64_t> latest_grant_;  // for SeededBug::kNoGenerationCheck
};

}  // namespace baton::sim
