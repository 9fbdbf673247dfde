#include "worker/worker_process.h"

#include <algorithm>
#include <random>

#include "base/hello.h"
#include "base/listen_address.h"
#include "base/log.h"
#include "worker/nvlink_clique.h"
#include "worker/pool_memory.h"

namespace baton {

namespace {

constexpr int64_t kFabricWaitMs = 10'000;  // for an NVLink fabric that is coming up

Role parse_role(const std::string& role) {
  if (role == "prefill") return Role::kPrefill;
  if (role == "decode") return Role::kDecode;
  return Role::kBoth;
}

Epoch random_epoch() {
  std::random_device random;
  return (static_cast<Epoch>(random()) << 32) | random() | 1;
}

std::string host_of(const std::string& address) {
  return address.substr(0, address.rfind(':'));
}

LoadedModel load(const WorkerConfig& config, LayerSink* sink, Startup& startup) {
  const bool cuda = config.device != "cpu";
  const auto or_default = [](auto value, auto fallback) { return value > 0 ? value : fallback; };
  EngineOptions options;
  options.device = config.device;
  options.threads = config.threads;
  options.isa = config.isa;
  options.page_tokens = or_default(config.kv.page_tokens, cuda ? 64 : 16);
  options.kv_dtype = config.kv.dtype;
  options.kv_bytes = or_default(config.kv.pool_mib, int64_t{cuda ? 0 : 1024}) << 20;
  options.gpu_memory_utilization = config.gpu_memory_utilization;
  options.dummy_weights = config.load_format == "dummy";
  options.deterministic = config.deterministic;
  options.cuda_graphs = config.cuda_graphs;
  options.running_max = config.scheduler.running_max;
  options.slab_bytes = config.kv.slab_mib << 20;
  options.plain_pool = config.kvtransfer.require == "ucx";  // it shares no slabs
  options.step_tokens_max = config.scheduler.step_tokens;
  options.context_len_max = config.context_len;
  options.linger_us = config.loop_linger_us;
  LoadedModel model = load_model(config.model, options, sink,
                                 [&startup](double fraction) { startup.loaded(fraction); });
  startup.loaded(1);
  return model;
}

// They go into the hello. Throws ConfigError.
void check_places(const WorkerConfig& config) {
  for (const auto& [name, value] :
       {std::pair("zone", &config.zone), std::pair("nvlink_clique", &config.nvlink_clique)}) {
    if (value->size() > kPlaceBytesMax)
      throw ConfigError(std::string(name) + ": got " + std::to_string(value->size()) +
                        " bytes, want at most " + std::to_string(kPlaceBytesMax));
  }
}

StatusReply unavailable_reply(const std::string& reason) {
  return {.code = 503, .body = reason + "\n"};
}

bool is_message(const WorkerEvent& event) {
  const auto* link = std::get_if<LinkEvent>(&event);
  return link != nullptr && std::holds_alternative<LinkMessage>(*link);
}

std::vector<int32_t> pages_per_group(const LoadedModel& model) {
  std::vector<int32_t> pages;
  for (const auto& pool : model.pools) pages.push_back(pool->num_pages());
  return pages;
}

}  // namespace

WorkerProcess::WorkerProcess(WorkerConfig config)
    : config_(std::move(config)),
      epoch_(random_epoch()),
      credentials_(std::make_shared<CredentialFiles>(config_.link)),
      status_server_(serve_status()),
      model_(load(config_, &layer_sink_, startup_)),
      ledger_(pages_per_group(model_)),
      prefix_cache_(model_.layout, ledger_, random_epoch(), config_.scheduler.prefix_cache),
      scheduler_(config_.scheduler, model_.layout, model_.facts.context_len, ledger_, prefix_cache_,
                 clock_),
      metrics_({.model_name = model_.facts.name,
                .kv_compat_id = model_.facts.kv_compat_id,
                .page_tokens = model_.layout.groups.front().page_tokens,
                .pages = ledger_.counts(0).total},
               config_) {
  ledger_.set_eviction_listener(&prefix_cache_);
  if (config_.log_debug) set_log_level(LogLevel::kDebug);
  if (config_.worker_id.empty()) config_.worker_id = config_.listen;
  config_.nvlink_clique = clique();
  mover_ = make_page_mover(
      config_.kvtransfer, model_.layout, pools(), host_of(config_.listen), clock_,
      [this](MoverEvent event) { inbox_.push(std::move(event)); }, credentials_,
      memory_of_pools(model_, config_.kvtransfer, config_.nvlink_clique));
  layer_sink_.sink = mover_.get();
  links_ = std::make_unique<Links>(
      config_.link, self(), config_.listen, clock_,
      [this](LinkEvent event) { inbox_.push(std::move(event)); }, credentials_);
  const std::chrono::microseconds linger(config_.loop_linger_us);
  engine_thread_ = std::make_unique<EngineThread>(
      *model_.engine, [this](StepOutput output) { inbox_.push(std::move(output)); },
      [this, linger] {
        inbox_.linger(linger);
        links_->linger(linger);
      },
      linger);
  core_ = std::make_unique<WorkerCore>(
      config_, self(),
      WorkerCore::Parts{model_.layout, ledger_, prefix_cache_, scheduler_, *mover_, *links_,
                        *engine_thread_, clock_, &metrics_});
  log_info("worker_ready", {{"role", config_.role},
                            {"listen", config_.listen},
                            {"model", model_.facts.name},
                            {"kv_compat_id", model_.facts.kv_compat_id},
                            {"numerics_id", model_.facts.numerics_id},
                            {"pages", ledger_.counts(0).total}});
  info_ = info_json(info());
  round_us_ = clock_.now_us();
  ready_ = true;
  startup_.finish();
}

// Threads first: after this nobody pushes into the inbox or reads a page.
WorkerProcess::~WorkerProcess() {
  status_server_.reset();
  engine_thread_.reset();
  core_.reset();
  links_.reset();
  mover_.reset();
}

int WorkerProcess::run() {
  int64_t drain_until_us = INT64_MAX;
  while (!core_->drained() && core_->fatal_error().empty() && clock_.now_us() < drain_until_us) {
    std::vector<WorkerEvent> events = inbox_.wait(std::chrono::milliseconds(config_.loop_tick_ms));
    const int64_t begin_us = clock_.now_us();
    if (config_.loop_linger_us > 0 && std::any_of(events.begin(), events.end(), is_message))
      linger();
    for (WorkerEvent& event : events) core_->handle(std::move(event));
    core_->on_timer();
    core_->prepare_steps();
    metrics_.update(*core_, prefix_cache_);
    step_running_us_ = core_->step_running_us();
    round_us_ = clock_.now_us();
    const int64_t took_us = round_us_ - begin_us;
    if (took_us > config_.loop_max_us)
      log_debug("loop_slow", {{"us", took_us}, {"events", events.size()}});
    if (core_->draining() && drain_until_us == INT64_MAX) {
      ready_ = false;
      drain_until_us = core_->drain_since_us() + config_.drain_timeout_ms * 1000;
    }
  }
  if (!core_->fatal_error().empty()) log_error("worker_failed", {{"error", core_->fatal_error()}});
  log_info("worker_leaves",
           {{"drained", core_->drained()}, {"handed_back", core_->counters().handed_back}});
  return core_->drained() && core_->fatal_error().empty() ? 0 : 1;
}

// A message's consequences follow at once: an answer of the peer's, the prompt's first step. That
// takes less time than it takes to wake the threads on the way, one after the other.
void WorkerProcess::linger() {
  const std::chrono::microseconds duration(config_.loop_linger_us);
  inbox_.linger(duration);
  links_->linger(duration);
  engine_thread_->linger(duration);
}

std::vector<PagePool*> WorkerProcess::pools() const {
  std::vector<PagePool*> pools;
  for (const auto& pool : model_.pools) pools.push_back(pool.get());
  return pools;
}

PeerInfo WorkerProcess::self() const {
  return {.worker_id = config_.worker_id,
          .epoch = epoch_,
          .role = parse_role(config_.role),
          .kv_compat_id = model_.facts.kv_compat_id,
          .model_name = model_.facts.name,
          .context_len = model_.facts.context_len,
          .vocab_size = model_.facts.vocab_size,
          .clique = config_.nvlink_clique,
          .zone = config_.zone};
}

std::string WorkerProcess::clique() const {
  if (config_.nvlink_clique != "auto") return config_.nvlink_clique;
  return model_.cuda_device < 0 ? "" : nvlink_clique(model_.cuda_device, kFabricWaitMs);
}

WorkerInfo WorkerProcess::info() const {
  WorkerInfo info{.peer = self(),
                  .numerics_id = model_.facts.numerics_id,
                  .device = config_.device,
                  .weight_bytes = model_.facts.weight_bytes};
  for (size_t g = 0; g < model_.pools.size(); ++g)
    info.groups.push_back({model_.pools[g]->num_pages(), model_.layout.groups[g].page_tokens});
  return info;
}

std::unique_ptr<StatusServer> WorkerProcess::serve_status() {
  // What is wrong with the configuration is told before the model is loaded, which may take
  // minutes.
  check_places(config_);
  listen_address(config_.listen, credentials_->has_token());
  if (config_.metrics_listen.empty()) return nullptr;
  return std::make_unique<StatusServer>(config_.metrics_listen,
                                        [this](const std::string& path) { return answer(path); });
}

bool WorkerProcess::alive() const {
  const int64_t limit_us = config_.stall_timeout_ms * 1000;
  return clock_.now_us() - round_us_ < limit_us && step_running_us_ < limit_us;
}

StatusReply WorkerProcess::answer(const std::string& path) {
  if (startup_.finished()) return answer_of_started(path);
  if (path == "/livez") return {};                                // loading may take its time
  if (path == "/metrics") return {200, kMetricsContentType, ""};  // nothing is measured so far
  return unavailable_reply(startup_.stage());
}

StatusReply WorkerProcess::answer_of_started(const std::string& path) {
  if (path == "/metrics") {
    metrics_.update_links(links_->stats());
    return {200, kMetricsContentType, metrics_.text()};
  }
  if (path == "/startupz") return {};
  if (path == "/livez")
    return alive() ? StatusReply{}
                   : unavailable_reply("the loop or a step of the engine stands still");
  if (path == "/readyz") return ready_ ? StatusReply{} : unavailable_reply("draining");
  if (path == "/info") return {200, "application/json", info_};
  if (path == "/debug/pages" || path == "/debug/handoffs") return debug(path);
  return {404, "text/plain",
          "want /metrics, /startupz, /livez, /readyz, /info, /debug/pages or /debug/handoffs\n"};
}

// The loop owns what is asked for, so the question goes through its inbox.
StatusReply WorkerProcess::debug(const std::string& path) {
  auto answer = std::make_shared<std::promise<WorkerView>>();
  std::future<WorkerView> view = answer->get_future();
  inbox_.push(ViewWish{std::move(answer)});
  const auto patience = std::chrono::milliseconds(config_.debug_wait_ms);
  if (view.wait_for(patience) != std::future_status::ready)
    return unavailable_reply("the loop does not answer");
  const WorkerView now = view.get();
  return {200, "application/json", path == "/debug/pages" ? pages_json(now) : handoffs_json(now)};
}

}  // namespace baton
