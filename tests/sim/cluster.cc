#include "tests/sim/cluster.h"

#include <algorithm>

#include "tests/sim/processes.h"

namespace baton::sim {

namespace {

constexpr int64_t kActionsMax = 3'000'000;  // far above what any run needs: more is a hang

class Cluster {
 public:
  Cluster(const ClusterOptions& options, uint64_t seed)
      : options_(options),
        random_(seed),
        network_(random_),
        layout_(sim_layout(options.page_tokens, options.window)) {
    for (int32_t i = 0; i < options.prefills; ++i)
      shapes_.push_back({Role::kPrefill, "p" + std::to_string(i) + ":1", options.pages,
                         options.tcp_like, options.bug});
    for (int32_t i = 0; i < options.decodes; ++i)
      shapes_.push_back({Role::kDecode, "d" + std::to_string(i) + ":1", options.pages,
                         options.tcp_like, options.bug});
    for (const WorkerShape& shape : shapes_) workers_.push_back(start(shape));
    for (int32_t i = 0; i < options.routers; ++i) routers_.push_back(start_router());
  }

  RunResult run() {
    plan_faults();
    for (actions_ = 0; actions_ < kActionsMax && !settled(); ++actions_) act();
    if (actions_ == kActionsMax) violation("hang: " + state());
    for (const auto& client : clients_) judge(*client);
    for (const auto& worker : workers_) {
      if (std::string left = worker->left_over(); !left.empty()) violation(left);
      result_.handoffs += worker->core.counters().handoffs_landed;
    }
    result_.digest = static_cast<int64_t>(random_.next());
    return std::move(result_);
  }

 private:
  std::unique_ptr<SimWorker> start(const WorkerShape& shape) {
    return std::make_unique<SimWorker>(network_, fabric_, layout_, clock_, next_epoch_++, shape,
                                       result_.violations);
  }

  std::unique_ptr<SimRouter> start_router() {
    std::vector<std::string> addresses;
    for (const WorkerShape& shape : shapes_) addresses.push_back(shape.address);
    return std::make_unique<SimRouter>(network_, clock_, next_epoch_++, addresses);
  }

  // When (in actions) each fault strikes.
  void plan_faults() {
    const auto plan = [&](int32_t count, void (Cluster::*fault)()) {
      for (int32_t i = 0; i < count; ++i) faults_.emplace(random_.below(12'000), fault);
    };
    plan(options_.kills, &Cluster::kill_worker);
    plan(options_.cuts, &Cluster::cut_connection);
    plan(options_.stalls, &Cluster::stall_mover);
    plan(options_.router_kills, &Cluster::kill_router);
  }

  // One random thing happens. Time passes a little, or, when nothing else can happen, as long as it
  // takes for a timer.
  void act() {
    for (auto it = faults_.begin(); it != faults_.end() && it->first <= actions_;
         it = faults_.erase(it))
      (this->*it->second)();
    if (submitted_ < options_.requests && random_.chance(0.02)) submit();
    if (random_.chance(0.003 * options_.cancel_rate)) cancel_one();
    clock_.advance_us(static_cast<int64_t>(random_.below(40)));
    if (!something()) {
      clock_.advance_us(2000);
      timers();
    } else if (random_.chance(0.02)) {
      timers();
    }
    if (violations_checked_ != actions_ / 64) {
      violations_checked_ = actions_ / 64;
      for (const auto& worker : workers_) worker->check_sums(result_.violations);
    }
  }

  bool something() {
    const uint64_t first = random_.below(8);
    for (uint64_t i = 0; i < 8; ++i) {
      if (something_of_kind((first + i) % 8)) return true;
    }
    return false;
  }

  bool something_of_kind(uint64_t kind) {
    SimWorker& worker = *workers_[random_.below(workers_.size())];
    switch (kind) {
      case 0:
        return network_.deliver_one();
      case 1:
        return random_.chance(0.2) && network_.dial_one();
      case 2:
        return any_worker([](SimWorker& w) { return w.handle_one(); });
      case 3:
        return any_worker([](SimWorker& w) { return w.engine.begin(); });
      case 4:
        return any_worker([](SimWorker& w) { return w.end_step(); });
      case 5:
        return random_.chance(options_.copy_rate) &&
               any_worker([](SimWorker& w) { return w.mover.step(); });
      case 6:
        return worker.mover.deliver_events() > 0;
      default:
        for (const auto& router : routers_) {
          if (router->handle_one()) return true;
        }
        return false;
    }
  }

  template <typename Action>
  bool any_worker(Action action) {
    const size_t first = random_.below(workers_.size());
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (action(*workers_[(first + i) % workers_.size()])) return true;
    }
    return false;
  }

  void timers() {
    for (const auto& router : routers_) router->dispatcher.on_timer();
    for (const auto& worker : workers_) {
      worker->core.on_timer();
      worker->core.prepare_steps();
      worker->mover.deliver_events();
    }
    for (SimWorker*& stalled : stalled_) {
      if (stalled == nullptr || !random_.chance(0.1)) continue;
      stalled->mover.set_stalled(false);
      stalled = nullptr;
    }
  }

  // ---- load ----

  void submit() {
    auto client = std::make_shared<Client>();
    SamplingSpec& spec = client->request.spec;
    spec.seed = random_.next();
    spec.n = random_.chance(0.2) ? random_.between(2, 3) : 1;
    spec.max_tokens = random_.chance(0.1) ? 1 : random_.between(2, 40);
    spec.eos_ids = {kEos};
    spec.ignore_eos = random_.chance(0.3);
    spec.temperature = 1;
    // Few different beginnings, so that prefixes are shared.
    const int32_t family = random_.between(1, 3);
    const int32_t length = random_.between(1, 100);
    for (int32_t i = 0; i < length; ++i)
      client->request.prompt.push_back(i < 56 ? (family * 7 + i) % kVocab
                                              : random_.between(0, kVocab - 1));
    routers_[random_.below(routers_.size())]->submit(client);
    clients_.push_back(std::move(client));
    ++submitted_;
  }

  void cancel_one() {
    if (clients_.empty()) return;
    Client& client = *clients_[random_.below(clients_.size())];
    if (client.over()) return;
    client.cancelled = true;
    for (const auto& router : routers_) {
      const auto& own = router->clients;
      const bool here =
          std::any_of(own.begin(), own.end(), [&](const auto& c) { return c.get() == &client; });
      if (here) router->dispatcher.cancel(client.id);
    }
  }

  // ---- faults ----

  void kill_worker() {
    const size_t index = random_.below(workers_.size());
    std::replace(stalled_.begin(), stalled_.end(), workers_[index].get(),
                 static_cast<SimWorker*>(nullptr));
    workers_[index].reset();
    workers_[index] = start(shapes_[index]);
  }
  void cut_connection() { network_.cut_one(); }
  void stall_mover() {
    SimWorker* worker = workers_[random_.below(workers_.size())].get();
    worker->mover.set_stalled(true);
    stalled_.push_back(worker);
  }
  void kill_router() {
    const size_t index = random_.below(routers_.size());
    for (const auto& client : routers_[index]->clients)
      client->cancelled = true;  // their connections died with it
    routers_[index].reset();
    routers_[index] = start_router();
  }

  // ---- the end ----

  bool settled() {
    if (submitted_ < options_.requests || !faults_.empty() || actions_ % 256 != 0) return false;
    const bool over = std::all_of(clients_.begin(), clients_.end(),
                                  [](const auto& client) { return client->over(); });
    if (!over) return false;
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& worker) { return worker->left_over().empty(); }) ||
           quiet_for_long();
  }

  // All requests are over and yet something is left: give it a minute of simulated time.
  bool quiet_for_long() {
    if (over_since_us_ == 0) over_since_us_ = clock_.now_us();
    return clock_.now_us() - over_since_us_ > 60'000'000;
  }

  void judge(const Client& client) {
    if (std::string wrong = client.wrong(); !wrong.empty()) violation("wrong text: " + wrong);
    if (client.cancelled) {
      ++result_.cancelled;
    } else if (client.complete()) {
      ++result_.completed;
    } else {
      ++result_.failed;
      violation("request not answered: " + (client.error.empty() ? "no end" : client.error));
    }
  }

  void violation(const std::string& what) { result_.violations.push_back(what); }

  std::string state() const {
    std::string text = std::to_string(network_.messages()) + " messages;";
    for (const auto& worker : workers_) text += " " + worker->left_over() + ";";
    const auto open = std::count_if(clients_.begin(), clients_.end(),
                                    [](const auto& client) { return !client->over(); });
    return text + " " + std::to_string(open) + " requests open";
  }

  const ClusterOptions options_;
  RunResult result_;
  Random random_;
  FakeClock clock_;
  Network network_;
  LoopbackFabric fabric_;
  const KvLayout layout_;
  Epoch next_epoch_ = 1;
  std::vector<WorkerShape> shapes_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
  std::vector<std::unique_ptr<SimRouter>> routers_;
  std::vector<std::shared_ptr<Client>> clients_;
  std::vector<SimWorker*> stalled_;
  std::multimap<int64_t, void (Cluster::*)()> faults_;
  int32_t submitted_ = 0;
  int64_t actions_ = 0;
  int64_t violations_checked_ = -1;
  int64_t over_since_us_ = 0;
};

}  // namespace

RunResult run_cluster(const ClusterOptions& options, uint64_t seed) {
  return Cluster(options, seed).run();
}

}  // namespace baton::sim
