#include "tests/sim/processes.h"

#include <algorithm>

namespace baton::sim {

namespace {

RouteConfig patient_route() {
  RouteConfig config;
  config.local_prompt_tokens = 8;
  config.recovery_attempts_max = 1000;  // with a healthy worker left no client may see an error
  config.queue_wait_ms = 3'600'000;
  config.request_timeout_ms = 3'600'000;
  return config;
}

WorkerConfig small_worker(const WorkerShape& shape) {
  WorkerConfig config;
  config.kvtransfer.digest = shape.digest;
  config.scheduler.step_tokens = 64;
  config.scheduler.chunk_tokens = 24;
  config.scheduler.running_max = 16;
  config.prefill.reserve_ahead = 2;
  config.decode.local_prefill_tokens = 12;
  config.decode.headroom_pages = 1;
  config.decode.open_wait_ms = 50;
  return config;
}

std::vector<std::unique_ptr<PagePool>> make_pools(const KvLayout& layout, int32_t pages) {
  std::vector<std::unique_ptr<PagePool>> pools;
  for (const KvGroup& group : layout.groups)
    pools.push_back(std::make_unique<PagePool>(group, pages, 4096));
  return pools;
}

std::vector<PagePool*> borrow(const std::vector<std::unique_ptr<PagePool>>& pools) {
  std::vector<PagePool*> borrowed;
  for (const auto& pool : pools) borrowed.push_back(pool.get());
  return borrowed;
}

PeerInfo info(Role role, const std::string& name, Epoch epoch, const std::string& compat = "") {
  return {.worker_id = name,
          .epoch = epoch,
          .role = role,
          .kv_compat_id = compat,
          .model_name = "sim",
          .context_len = 1000,
          .vocab_size = kVocab};
}

}  // namespace

bool Client::on_token(int32_t, const TokenEvent& event) {
  received[event.choice].push_back(event.token);
  finished[event.choice] = event.finish;
  return true;
}

bool Client::complete() const {
  return std::all_of(finished.begin(), finished.end(),
                     [](FinishReason f) { return f != FinishReason::kNone; });
}

std::string Client::wrong() const {
  for (int32_t choice = 0; choice < request.spec.n; ++choice) {
    std::vector<TokenId> tokens = request.prompt;
    const auto prompt_len = static_cast<int32_t>(tokens.size());
    FinishReason finish = FinishReason::kNone;
    for (size_t i = 0; i < received[choice].size(); ++i) {
      const std::string where = "choice " + std::to_string(choice) + " token " + std::to_string(i);
      if (finish != FinishReason::kNone) return where + " came after the end";
      const TokenId want = next_token(request.spec, choice, tokens, prompt_len, &finish);
      if (received[choice][i] != want)
        return where + ": got " + std::to_string(received[choice][i]) + ", want " +
               std::to_string(want);
      tokens.push_back(want);
    }
    if (finish != finished[choice])
      return "choice " + std::to_string(choice) + " has the wrong finish reason";
  }
  return "";
}

SimRouter::SimRouter(Network& network, const Clock& clock, Epoch epoch,
                     const std::vector<std::string>& workers)
    : config(patient_route()),
      metrics("sim"),
      placement(config, epoch),
      endpoint(network, info(Role::kRouter, "router-" + std::to_string(epoch), epoch), "",
               [this](LinkEvent event) { inbox.push_back(std::move(event)); }),
      dispatcher(config, epoch, endpoint, clock, placement, metrics) {
  for (const std::string& address : workers) endpoint.connect(address);
}

bool SimRouter::handle_one() {
  if (inbox.empty()) return false;
  LinkEvent event = std::move(inbox.front());
  inbox.pop_front();
  if (auto* up = std::get_if<LinkUp>(&event)) {
    dispatcher.on_link_up(up->link, up->peer);
  } else if (auto* down = std::get_if<LinkDown>(&event)) {
    dispatcher.on_link_down(down->link, down->reason);
  } else {
    auto& message = std::get<LinkMessage>(event);
    dispatcher.on_message(message.link, message.message);
  }
  return true;
}

void SimRouter::submit(const std::shared_ptr<Client>& client) {
  client->received.resize(client->request.spec.n);
  client->finished.resize(client->request.spec.n, FinishReason::kNone);
  client->id = dispatcher.submit(client->request, client);
  clients.push_back(client);
}

SimWorker::SimWorker(Network& network, LoopbackFabric& fabric, const KvLayout& kv,
                     const Clock& clock, Epoch epoch, const WorkerShape& worker_shape,
                     std::vector<std::string>& violations)
    : shape(worker_shape),
      config(small_worker(shape)),
      layout(kv),
      pools(make_pools(layout, shape.pages)),
      mover(fabric, config.kvtransfer, layout, borrow(pools), clock,
            [this](MoverEvent event) {
              if (front.is_news(event)) inbox.emplace_back(std::move(event));
            },
            {.stores_ourselves = shape.tcp_like, .faults = shape.faults}),
      front(mover, shape.bug, [this](MoverEvent event) { inbox.emplace_back(std::move(event)); }),
      ledger(std::vector<int32_t>(layout.groups.size(), shape.pages)),
      prefix_cache(layout, ledger, epoch, true),
      scheduler(config.scheduler, layout, 1000, ledger, prefix_cache, clock),
      engine(layout, borrow(pools), mover, violations),
      endpoint(network, info(shape.role, shape.address, epoch, shape.kv_compat_id), shape.address,
               [this](LinkEvent event) { inbox.emplace_back(std::move(event)); }),
      core(config, info(shape.role, shape.address, epoch, shape.kv_compat_id),
           {layout, ledger, prefix_cache, scheduler, front, endpoint, engine, clock}) {
  ledger.set_eviction_listener(&prefix_cache);
  seed_bug();
}

void SimWorker::seed_bug() {
  if (shape.bug == SeededBug::kFreesOnTimeout) {
    endpoint.watch_sends([this](LinkId link, const Message& message) {
      const auto* release = std::get_if<Release>(&message);
      if (release != nullptr)
        inbox.emplace_back(LinkEvent(LinkMessage{link, Drained{release->slot_gen}}));
    });
  } else if (shape.bug == SeededBug::kNoGenerationCheck) {
    endpoint.watch_sends([this](LinkId link, const Message& message) {
      if (const auto* grant = std::get_if<Grant>(&message)) latest_grant_[link] = grant->slot_gen;
    });
  }
}

void SimWorker::seed_bug(LinkMessage& message) {
  auto* drained = std::get_if<Drained>(&message.message);
  if (drained != nullptr && shape.bug == SeededBug::kNoGenerationCheck) {
    drained->slot_gen = latest_grant_[message.link];
  }
}

bool SimWorker::handle_one() {
  if (stopped || inbox.empty()) return false;
  WorkerEvent event = std::move(inbox.front());
  inbox.pop_front();
  if (auto* link_event = std::get_if<LinkEvent>(&event)) {
    if (auto* message = std::get_if<LinkMessage>(link_event)) seed_bug(*message);
  }
  core.handle(std::move(event));
  core.prepare_steps();
  return true;
}

void SimWorker::set_stopped(bool stop) {
  stopped = stop;
  mover.set_stalled(stop);
  endpoint.set_stopped(stop);
}

bool SimWorker::end_step() {
  StepOutput output;
  if (stopped || !engine.end(&output)) return false;
  inbox.emplace_back(std::move(output));
  return true;
}

std::string SimWorker::left_over() const {
  std::string what;
  if (!core.push_side().idle()) what += " handoffs at P";
  if (!core.landing_side().idle()) what += " attempts or grants at D";
  if (scheduler.running() + scheduler.waiting() > 0) what += " sequences";
  for (int32_t g = 0; g < ledger.num_groups(); ++g) {
    const PageCounts counts = ledger.counts(g);
    if (counts.free + counts.cached != counts.total) {
      what += " pages (used " + std::to_string(counts.used) + ", granted " +
              std::to_string(counts.granted) + ", quarantined " +
              std::to_string(counts.quarantined) + ")";
    }
  }
  return what.empty() ? "" : shape.address + " still has" + what;
}

void SimWorker::check_sums(std::vector<std::string>& violations) const {
  for (int32_t g = 0; g < ledger.num_groups(); ++g) {
    const PageCounts c = ledger.counts(g);
    if (c.free + c.cached + c.used + c.granted + c.quarantined != c.total ||
        c.total != shape.pages) {
      violations.push_back(shape.address + ": page counts do not sum to the pool");
    }
  }
}

}  // namespace baton::sim
