#include "router/metrics.h"

#include <algorithm>

#include "base/link_metrics.h"
#include "base/metrics.h"
#include "router/metric_table.h"

namespace baton {
namespace {

constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};
constexpr const char* kStates[] = {"ready", "draining", "silent"};

const char* state_of(const Worker& worker) {
  if (worker.draining) return "draining";
  return worker.silent ? "silent" : "ready";
}

double used_share(const WorkerStatus& status) {
  double share = 0;
  for (const PageCounts& pages : status.pages) {
    if (pages.total <= 0) continue;
    share = std::max(share, 1.0 - static_cast<double>(pages.free + pages.cached) /
                                      static_cast<double>(pages.total));
  }
  return share;
}

}  // namespace

struct RouterMetrics::Series {
  Series(const std::string& model_name, const MetricsConfig& config)
      : registry({{"model_name", model_name}, {"engine", "0"}, {"role", "router"}},
                 router_metric_infos(config), config.vllm_aliases) {
    for (const char* reason : kReasons) {
      ended.emplace(reason,
                    registry.counter("baton_requests_ended_total", {{"finished_reason", reason}}));
    }
    for (const char* reason : kRejectReasons) {
      rejected.emplace(reason,
                       registry.counter("baton_requests_rejected_total", {{"reason", reason}}));
    }
    for (const Role role : {Role::kPrefill, Role::kDecode, Role::kBoth}) {
      for (const std::string state : kStates) {
        const std::string name = role_name(role);
        workers.emplace(std::pair(name, state),
                        registry.gauge("baton_workers", {{"worker_role", name}, {"state", state}}));
      }
    }
    registry.gauge("baton_slo_seconds", {{"slo", "ttft"}}).set(config.ttft_slo_s);
    registry.gauge("baton_slo_seconds", {{"slo", "tpot"}}).set(config.tpot_slo_s);
  }

  Histogram part(const char* name) {
    return registry.histogram("baton_ttft_part_seconds", {{"part", name}});
  }
  Counter placed(const char* prefill) {
    return registry.counter("baton_requests_placed_total", {{"prefill", prefill}});
  }

  MetricRegistry registry;
  LinkMetrics links{registry};

  Histogram ttft = registry.histogram("baton_ttft_seconds");
  Histogram ttft_queue = part("queue"), ttft_reserve = part("reserve"),
            ttft_prefill = part("prefill"), ttft_transfer = part("transfer"),
            ttft_first_token = part("first_token");
  Histogram itl = registry.histogram("baton_itl_seconds");
  Histogram tpot = registry.histogram("baton_tpot_seconds");
  Histogram handoff_gap = registry.histogram("baton_handoff_gap_seconds");
  Histogram e2e = registry.histogram("baton_e2e_seconds");
  Histogram queue = registry.histogram("baton_queue_seconds");
  Histogram ttft_error = registry.histogram("baton_ttft_prediction_error_seconds");
  Histogram prompt = registry.histogram("baton_request_prompt_tokens");
  Histogram generated = registry.histogram("baton_request_generation_tokens");
  Histogram n = registry.histogram("baton_request_choices");
  Counter prompt_tokens = registry.counter("baton_prompt_tokens_total");
  Counter cached_tokens = registry.counter("baton_prompt_tokens_cached_total");
  Counter prefix_queries = registry.counter("baton_prefix_cache_queries_total");
  Counter prefix_hits = registry.counter("baton_prefix_cache_hits_total");
  Counter generation_tokens = registry.counter("baton_generation_tokens_total");
  std::map<std::string, Counter> ended;  // by finished_reason
  Gauge running = registry.gauge("baton_requests_running");
  Gauge waiting = registry.gauge("baton_requests_waiting");
  Gauge kv_usage = registry.gauge("baton_worker_kv_usage_ratio");
  Gauge connections = registry.gauge("baton_http_connections");
  std::map<std::pair<std::string, std::string>, Gauge> workers;  // by role and state
  Gauge workers_prefill = registry.gauge("baton_workers_prefill");
  Gauge workers_decode = registry.gauge("baton_workers_decode");
  Gauge stale_sources = registry.gauge("baton_discovery_stale_sources");
  std::map<std::pair<std::string, std::string>, Gauge> pages;  // by worker and state
  Counter placed_remote = placed("remote"), placed_local = placed("local");
  Counter refused = registry.counter("baton_requests_refused_total");
  std::map<std::string, Counter> rejected;  // by reason
  Counter unanswered = registry.counter("baton_requests_unanswered_total");
  Counter replayed = registry.counter("baton_requests_replayed_total");
  Counter stale = registry.counter("baton_stale_messages_total");
  Counter repeated = registry.counter("baton_repeated_tokens_total");

  // As the workers state them; a worker that is gone shows 0 in every state.
  void tell_pages(const std::map<LinkId, Worker>& workers) {
    for (auto& [key, gauge] : pages) gauge.set(0);
    for (const auto& [link, worker] : workers) {
      for (const PageCounts& counts : worker.status.pages) {
        add_pages(worker.peer.worker_id, "free", counts.free);
        add_pages(worker.peer.worker_id, "cached", counts.cached);
        add_pages(worker.peer.worker_id, "used", counts.used);
        add_pages(worker.peer.worker_id, "granted", counts.granted);
        add_pages(worker.peer.worker_id, "quarantined", counts.quarantined);
      }
    }
  }
  void add_pages(const std::string& worker, const std::string& state, int64_t count) {
    const auto [it, added] = pages.try_emplace(
        {worker, state},
        registry.gauge("baton_worker_pages", {{"worker", worker}, {"state", state}}));
    it->second.add(static_cast<double>(count));
  }
};

RouterMetrics::RouterMetrics(const std::string& model_name, const MetricsConfig& config)
    : series_(std::make_unique<Series>(model_name, config)) {}

RouterMetrics::~RouterMetrics() = default;

void RouterMetrics::first_token(const TtftSplit& split) {
  series_->ttft.observe(split.ttft_s());
  series_->ttft_queue.observe(split.queue_s);
  series_->ttft_reserve.observe(split.reserve_s);
  series_->ttft_prefill.observe(split.prefill_s);
  series_->ttft_transfer.observe(split.transfer_s);
  series_->ttft_first_token.observe(split.first_token_s);
}
void RouterMetrics::next_token(double gap_s) {
  series_->itl.observe(gap_s);
}
void RouterMetrics::choice_done(double tpot_s) {
  series_->tpot.observe(tpot_s);
}

void RouterMetrics::request_done(const RequestStats& stats) {
  Series& s = *series_;
  const auto counter = s.ended.find(stats.finished_reason);
  if (counter != s.ended.end()) counter->second.add();
  s.e2e.observe(stats.e2e_s);
  s.prompt.observe(static_cast<double>(stats.prompt_tokens));
  s.generated.observe(static_cast<double>(stats.generated_tokens));
  s.n.observe(stats.n);
  s.prompt_tokens.add(static_cast<double>(stats.prompt_tokens));
  s.cached_tokens.add(static_cast<double>(stats.cached_tokens));
  s.prefix_queries.add(static_cast<double>(stats.prompt_tokens));
  s.prefix_hits.add(static_cast<double>(stats.cached_tokens));
  s.generation_tokens.add(static_cast<double>(stats.generated_tokens));
}

void RouterMetrics::http_answer(const std::string& route, int status) {
  series_->registry
      .counter("baton_http_requests_total", {{"route", route}, {"status", std::to_string(status)}})
      .add();
}

void RouterMetrics::placed(double queue_s, bool local) {
  series_->queue.observe(queue_s);
  (local ? series_->placed_local : series_->placed_remote).add();
}

void RouterMetrics::landed(double gap_s) {
  series_->handoff_gap.observe(gap_s);
}
void RouterMetrics::refused() {
  series_->refused.add();
}
void RouterMetrics::rejected(const std::string& reason) {
  series_->rejected.at(reason).add();
}
void RouterMetrics::predicted_ttft(double error_s) {
  series_->ttft_error.observe(error_s);
}
void RouterMetrics::unanswered() {
  series_->unanswered.add();
}
void RouterMetrics::replayed() {
  series_->replayed.add();
}
void RouterMetrics::stale_message() {
  series_->stale.add();
}
void RouterMetrics::repeated_token() {
  series_->repeated.add();
}

void RouterMetrics::set_load(size_t active, size_t waiting, size_t connections) {
  series_->running.set(static_cast<double>(active - waiting));
  series_->waiting.set(static_cast<double>(waiting));
  series_->connections.set(static_cast<double>(connections));
}

void RouterMetrics::set_links(const LinkStats& stats) {
  series_->links.update(stats);
}

void RouterMetrics::set_stale_sources(size_t sources) {
  series_->stale_sources.set(static_cast<double>(sources));
}

void RouterMetrics::set_workers(const std::map<LinkId, Worker>& workers) {
  int prefill = 0, decode = 0;
  double usage = 0;
  for (auto& [key, gauge] : series_->workers) gauge.set(0);
  for (const auto& [link, worker] : workers) {
    const auto counted = series_->workers.find({role_name(worker.peer.role), state_of(worker)});
    if (counted != series_->workers.end()) counted->second.add(1);
    prefill += worker.prefills() ? 1 : 0;
    decode += worker.decodes() ? 1 : 0;
    if (worker.decodes()) usage = std::max(usage, used_share(worker.status));
  }
  series_->workers_prefill.set(prefill);
  series_->workers_decode.set(decode);
  series_->kv_usage.set(usage);
  series_->tell_pages(workers);
}

std::string RouterMetrics::text() const {
  return series_->registry.text();
}

}  // namespace baton
