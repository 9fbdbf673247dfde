#include "router/metrics.h"

#include <algorithm>

#include "base/link_metrics.h"
#include "base/metrics.h"

namespace baton {
namespace {

constexpr int64_t kTokensMax = 131072;
const std::vector<double> kQueueSecondsEdges = {.001, .005, .01, .05, .1, .3, .5, .8, 1,
                                                1.5,  2,    2.5, 5,   10, 20, 40, 60, 120};
const std::vector<double> kTtftErrorSecondsEdges = {-10, -5,  -2, -1, -.5, -.2, -.1, -.05, -.02, 0,
                                                    .02, .05, .1, .2, .5,  1,   2,   5,    10};
const std::vector<double> kChoicesEdges = {1, 2, 5, 10, 20};
constexpr const char* kReasons[] = {"stop", "length", "abort", "error"};

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
  explicit Series(const std::string& model_name)
      : registry({{"model_name", model_name}, {"engine", "0"}}) {
    for (const char* reason : kReasons) {
      success.emplace(reason, registry.counter("vllm:request_success_total", "Ended requests.",
                                               {{"finished_reason", reason}}));
    }
    for (const char* reason : kRejectReasons) {
      rejected.emplace(reason, registry.counter("baton_requests_rejected_total",
                                                "Requests answered 429 or 503 before a token.",
                                                {{"reason", reason}}));
    }
  }

  MetricRegistry registry;
  LinkMetrics links{registry};

  Histogram ttft =
      registry.histogram("vllm:time_to_first_token_seconds",
                         "From the request's arrival to its first token.", kTtftSecondsEdges);
  Histogram itl = registry.histogram("vllm:inter_token_latency_seconds",
                                     "Between two tokens of a choice.", kInterTokenSecondsEdges);
  Histogram e2e = registry.histogram("vllm:e2e_request_latency_seconds",
                                     "From a request's arrival to its end.", kRequestSecondsEdges);
  Histogram queue = registry.histogram("vllm:request_queue_time_seconds",
                                       "From a request's arrival to a worker's promise to take it.",
                                       kQueueSecondsEdges);
  Histogram prompt = registry.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.",
                                        token_count_edges(kTokensMax));
  Histogram generated =
      registry.histogram("vllm:request_generation_tokens", "Generated tokens of a request.",
                         token_count_edges(kTokensMax));
  Histogram n = registry.histogram("vllm:request_params_n", "Choices asked for.", kChoicesEdges);
  Counter prompt_tokens =
      registry.counter("vllm:prompt_tokens_total", "Prompt tokens of ended requests.");
  Counter cached_tokens = registry.counter("vllm:prompt_tokens_cached_total",
                                           "Prompt tokens that came out of a prefix cache.");
  Counter prefix_queries = registry.counter("vllm:prefix_cache_queries_total",
                                            "Prompt tokens looked up in prefix caches.");
  Counter prefix_hits =
      registry.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in prefix caches.");
  Counter generation_tokens =
      registry.counter("vllm:generation_tokens_total", "Generated tokens of ended requests.");
  std::map<std::string, Counter> success;  // by finished_reason
  Gauge running = registry.gauge("vllm:num_requests_running", "Prompts that have a first token.");
  Gauge waiting = registry.gauge("vllm:num_requests_waiting", "Prompts without a token so far.");
  Gauge kv_usage = registry.gauge("vllm:kv_cache_usage_perc",
                                  "Pages in use, 0 to 1, of the fullest decode worker.");
  Gauge connections = registry.gauge("baton_http_connections", "Open client connections.");
  Gauge workers_prefill = registry.gauge("baton_workers_prefill", "Workers up that can prefill.");
  Gauge workers_decode = registry.gauge("baton_workers_decode", "Workers up that can decode.");
  std::map<std::pair<std::string, std::string>, Gauge> pages;  // by worker and state
  Counter placed_remote = registry.counter("baton_requests_placed_total",
                                           "Requests taken by workers.", {{"prefill", "remote"}});
  Counter placed_local = registry.counter("baton_requests_placed_total",
                                          "Requests taken by workers.", {{"prefill", "local"}});
  Counter refused =
      registry.counter("baton_requests_refused_total", "Attempts that found all candidates full.");
  std::map<std::string, Counter> rejected;  // by reason
  Histogram ttft_error = registry.histogram(
      "baton_ttft_prediction_error_seconds",
      "How much later than predicted at its placing a first token came.", kTtftErrorSecondsEdges);
  Counter unanswered =
      registry.counter("baton_requests_unanswered_total",
                       "Attempts taken from a worker that did not move (route.placed_wait_ms).");
  Counter replayed = registry.counter("baton_requests_replayed_total",
                                      "Attempts repeated after the loss of a worker.");
  Counter stale =
      registry.counter("baton_stale_messages_total", "Messages of attempts that are over.");
  Counter repeated = registry.counter("baton_repeated_tokens_total", "Tokens that came twice.");

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
        {worker, state}, registry.gauge("baton_worker_pages", "KV pages by worker and state.",
                                        {{"worker", worker}, {"state", state}}));
    it->second.add(static_cast<double>(count));
  }
};

RouterMetrics::RouterMetrics(const std::string& model_name)
    : series_(std::make_unique<Series>(model_name)) {}

RouterMetrics::~RouterMetrics() = default;

void RouterMetrics::first_token(double ttft_s) {
  series_->ttft.observe(ttft_s);
}
void RouterMetrics::next_token(double gap_s) {
  series_->itl.observe(gap_s);
}

void RouterMetrics::request_done(const RequestStats& stats) {
  Series& s = *series_;
  const auto counter = s.success.find(stats.finished_reason);
  if (counter != s.success.end()) counter->second.add();
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
      .counter("baton_http_requests_total", "Answers by route and status.",
               {{"route", route}, {"status", std::to_string(status)}})
      .add();
}

void RouterMetrics::placed(double queue_s, bool local) {
  series_->queue.observe(queue_s);
  (local ? series_->placed_local : series_->placed_remote).add();
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

void RouterMetrics::set_workers(const std::map<LinkId, Worker>& workers) {
  int prefill = 0, decode = 0;
  double usage = 0;
  for (const auto& [link, worker] : workers) {
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
