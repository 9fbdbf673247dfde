#include "tests/sim/cluster.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tests/sim/message_label.h"
#include "tests/sim/processes.h"
#include "tests/sim/workload.h"

namespace baton::sim {

namespace {

constexpr size_t kConversationMax = 400;    // tokens; the smallest pool with talk holds 640
constexpr int64_t kActionsMax = 3'000'000;  // far above what any run needs: more is a hang

class Cluster {
 public:
  Cluster(const ClusterOptions& options, uint64_t seed)
      : options_(options),
        random_(seed),
        network_(random_, options.frames,
                 [this](const Endpoint& from, const Endpoint& to, const Message& message) {
                   return on_message(from, to, message);
                 }),
        layout_(sim_layout(options.page_tokens, options.window)) {
    add_shapes(Role::kPrefill, "p", options.prefills);
    add_shapes(Role::kDecode, "d", options.decodes);
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
    result_.digest = trace_;
    return std::move(result_);
  }

 private:
  void add_shapes(Role role, const std::string& name, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      WorkerShape shape{.role = role,
                        .address = name + std::to_string(i) + ":1",
                        .pages = options_.pages,
                        .tcp_like = options_.tcp_like,
                        .digest = options_.digest,
                        .faults = options_.transport,
                        .bug = options_.bug};
      shape.faults->seed = random_.next();
      if (options_.two_kinds && i == count - 1) shape.kv_compat_id = "other";
      shapes_.push_back(std::move(shape));
    }
  }

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
    plan(options_.stops, &Cluster::stop_worker);
    plan(options_.restarts_of_one, &Cluster::restart_first);
    for (const Trigger& trigger : options_.triggers) strikes_left_.push_back(trigger.times);
  }

  // One random thing happens. Time passes a little, or, when nothing else can happen, as long as it
  // takes for a timer.
  void act() {
    for (auto it = faults_.begin(); it != faults_.end() && it->first <= actions_;
         it = faults_.erase(it))
      (this->*it->second)();
    if (submitted_ < options_.load.requests && random_.chance(0.02)) submit();
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
      note_states();
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
        return deliver();
      case 1:
        return random_.chance(0.2) && network_.dial_one();
      case 2:
        return any_worker([](SimWorker& w) { return w.handle_one(); });
      case 3:
        return any_worker([](SimWorker& w) { return !w.stopped && w.engine.begin(); });
      case 4:
        return any_worker([](SimWorker& w) { return w.end_step(); });
      case 5:
        return random_.chance(options_.copy_rate) &&
               any_worker([](SimWorker& w) { return w.mover.step(); });
      case 6:
        return !worker.stopped && worker.mover.deliver_events() > 0;
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
      if (worker->stopped) continue;
      worker->core.on_timer();
      worker->core.prepare_steps();
      worker->mover.deliver_events();
    }
    for (SimWorker*& stalled : stalled_) {
      if (stalled == nullptr || !random_.chance(0.1)) continue;
      stalled->set_stopped(false);
      stalled = nullptr;
    }
  }

  // ---- load ----

  void submit() {
    const auto open = std::count_if(clients_.begin(), clients_.end(),
                                    [](const auto& client) { return !client->over(); });
    if (open >= options_.load.concurrent_max) return;
    const Workload& load = options_.load;
    auto client = std::make_shared<Client>();
    client->request.spec = random_spec(load, random_);
    if (random_.chance(load.second_turn_share)) {
      if (const Client* before = answered_client()) {
        client->request.prompt = next_turn(*before, random_);
        lose_between_turns();
      }
    }
    const bool large = load.large_every > 0 && submitted_ % load.large_every == 0;
    client->must_fail = large && !load.large_fits;
    if (client->request.prompt.empty() || large)
      client->request.prompt = random_prompt(load, large, random_);
    routers_[random_.below(routers_.size())]->submit(client);
    clients_.push_back(std::move(client));
    ++submitted_;
  }

  const Client* answered_client() const {
    for (auto it = clients_.rbegin(); it != clients_.rend(); ++it) {
      const bool answered = (*it)->complete() && !(*it)->cancelled && (*it)->error.empty();
      if (answered && (*it)->request.prompt.size() < kConversationMax) return it->get();
    }
    return nullptr;
  }

  // So that the prefix is left on one side only.
  void lose_between_turns() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      const bool is_prefill = shapes_[i].role == Role::kPrefill;
      const bool wanted =
          is_prefill ? options_.kill_between_turns_prefill : options_.kill_between_turns_decode;
      if (wanted) restart(i);
    }
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

  void kill_worker() { restart(random_.below(workers_.size())); }
  void restart_first() { restart(0); }
  void restart(size_t index) {
    std::replace(stalled_.begin(), stalled_.end(), workers_[index].get(),
                 static_cast<SimWorker*>(nullptr));
    workers_[index].reset();
    workers_[index] = start(shapes_[index]);
  }
  void stop_worker() { stop(random_.below(workers_.size())); }
  void stop(size_t index) {
    SimWorker& worker = *workers_[index];
    if (worker.stopped) return;
    worker.set_stopped(true);
    network_.cut_all_of(worker.endpoint);
    stalled_.push_back(&worker);
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

  // ---- what strikes at a message ----

  bool deliver() {
    if (!network_.deliver_one()) return false;
    // Not from inside of the network: these take endpoints away.
    for (const std::string& address : std::exchange(to_kill_, {})) {
      if (const auto index = index_of(address)) restart(*index);
    }
    for (const std::string& address : std::exchange(to_stop_, {})) {
      if (const auto index = index_of(address)) stop(*index);
    }
    if (std::exchange(to_cancel_, false)) cancel_one();
    return true;
  }

  std::optional<size_t> index_of(const std::string& address) const {
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].address == address) return i;
    }
    return std::nullopt;  // a router
  }

  bool on_message(const Endpoint& from, const Endpoint& to, const Message& message) {
    const std::string name = message_label(message);
    ++result_.seen[name];
    for (const char c : name + from.self().worker_id + to.self().worker_id)
      trace_ = (trace_ ^ static_cast<uint8_t>(c)) * 1099511628211U;
    trace_ = (trace_ ^ static_cast<uint64_t>(clock_.now_us())) * 1099511628211U;
    for (size_t i = 0; i < options_.triggers.size(); ++i) {
      const Trigger& trigger = options_.triggers[i];
      const bool strikes = strikes_left_[i] > 0 && name.starts_with(trigger.message) &&
                           random_.chance(trigger.share);
      if (!strikes) continue;
      --strikes_left_[i];
      if (trigger.strike == Strike::kCancel) to_cancel_ = true;
      if (trigger.strike == Strike::kKillSender) to_kill_.push_back(from.self().worker_id);
      if (trigger.strike == Strike::kKillReceiver) to_kill_.push_back(to.self().worker_id);
      if (trigger.strike == Strike::kStopSender) to_stop_.push_back(from.self().worker_id);
      if (trigger.strike == Strike::kLose || trigger.strike == Strike::kKillReceiver) return false;
    }
    return true;
  }

  // What goes on at once, for the scenarios that are about that.
  void note_states() {
    for (const auto& worker : workers_) {
      const bool landing = worker->ledger.counts(0).granted > 0;
      if (landing && worker->scheduler.preempted_waiting()) ++result_.seen["preempted and landing"];
      if (landing && worker->scheduler.waiting() > 0) ++result_.seen["local and landing"];
      if (worker->ledger.counts(0).quarantined > 0) ++result_.seen["quarantined"];
      result_.seen["digest mismatch"] += worker->core.counters().digest_mismatches;
    }
  }

  // ---- the end ----

  bool settled() {
    if (submitted_ < options_.load.requests || !faults_.empty() || actions_ % 256 != 0)
      return false;
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
    } else if (client.must_fail) {
      ++result_.refused;
      if (client.error.empty()) violation("a request larger than any pool was answered");
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
  std::vector<int32_t> strikes_left_;  // of each trigger
  std::vector<std::string> to_kill_, to_stop_;
  bool to_cancel_ = false;
  uint64_t trace_ = 14695981039346656037U;  // of every message and its time: FNV-1a
};

}  // namespace

RunResult run_cluster(const ClusterOptions& options, uint64_t seed) {
  return Cluster(options, seed).run();
}

}  // namespace baton::sim
