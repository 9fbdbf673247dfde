#include "router/metric_table.h"

#include "base/link_metrics.h"

namespace baton {
namespace {

using enum MetricType;

constexpr int64_t kTokensMax = 131072;
const std::vector<double> kQueueSecondsEdges = {.001, .005, .01, .05, .1, .3, .5, .8, 1,
                                                1.5,  2,    2.5, 5,   10, 20, 40, 60, 120};
const std::vector<double> kTtftErrorSecondsEdges = {-10, -5,  -2, -1, -.5, -.2, -.1, -.05, -.02, 0,
                                                    .02, .05, .1, .2, .5,  1,   2,   5,    10};
const std::vector<double> kHandoffSecondsEdges = {.0005, .001, .002, .005, .01, .02, .05, .1,
                                                  .2,    .5,   1,    2,    5,   10,  30};
const std::vector<double> kChoicesEdges = {1, 2, 5, 10, 20};

using Infos = std::vector<MetricInfo>;

void append(Infos& table, Infos rows) {
  table.insert(table.end(), rows.begin(), rows.end());
}

Infos latency_infos(const std::vector<double>& ttft, const std::vector<double>& tpot) {
  return {
      {"baton_ttft_seconds",
       kHistogram,
       "seconds",
       {},
       "From a request's arrival to its first token; requests without a token are not in it",
       {"vllm:time_to_first_token_seconds"},
       ttft},
      {"baton_ttft_part_seconds",
       kHistogram,
       "seconds",
       {"part"},
       "Where that time went; the parts of a request sum to its TTFT. part: queue (in the router), "
       "reserve (the prefill worker's queue and its reservation), prefill, transfer (only where it "
       "is waited for), first_token (from the prompt's end)",
       {},
       ttft},
      {"baton_itl_seconds",
       kHistogram,
       "seconds",
       {},
       "Between two tokens of a choice",
       {"vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"},
       tpot},
      {"baton_tpot_seconds",
       kHistogram,
       "seconds",
       {},
       "Mean time from one token to the next, of a choice that ended with two tokens or more",
       {"vllm:request_time_per_output_token_seconds"},
       tpot},
      {"baton_slo_seconds",
       kGauge,
       "seconds",
       {"slo"},
       "The objectives metrics.ttft_slo_s and metrics.tpot_slo_s; slo: ttft, tpot"},
      {"baton_handoff_gap_seconds",
       kHistogram,
       "seconds",
       {},
       "From the prefill worker's first token to the decode worker's first word: what a client "
       "sees of the handoff, between its first two tokens",
       {},
       kHandoffSecondsEdges},
      {"baton_e2e_seconds",
       kHistogram,
       "seconds",
       {},
       "From a request's arrival to its end",
       {"vllm:e2e_request_latency_seconds"},
       kRequestSecondsEdges},
      {"baton_queue_seconds",
       kHistogram,
       "seconds",
       {},
       "From a request's arrival at the queue to a worker's promise to take it, for each attempt",
       {"vllm:request_queue_time_seconds"},
       kQueueSecondsEdges},
      {"baton_ttft_prediction_error_seconds",
       kHistogram,
       "seconds",
       {},
       "How much later than predicted at its placing a first token came; negative: earlier",
       {},
       kTtftErrorSecondsEdges},
  };
}

Infos traffic_infos() {
  const std::vector<double> tokens = token_count_edges(kTokensMax);
  return {
      {"baton_http_requests_total",
       kCounter,
       "answers",
       {"route", "status"},
       "Answers by route and HTTP status"},
      {"baton_http_connections", kGauge, "connections", {}, "Open client connections"},
      {"baton_requests_ended_total",
       kCounter,
       "requests",
       {"finished_reason"},
       "Ended requests, by how the first choice ended: stop, length, abort, error",
       {"vllm:request_success_total"}},
      {"baton_requests_running",
       kGauge,
       "prompts",
       {},
       "Prompts that have a first token",
       {"vllm:num_requests_running"}},
      {"baton_requests_waiting",
       kGauge,
       "prompts",
       {},
       "Prompts without a token so far",
       {"vllm:num_requests_waiting"}},
      {"baton_request_prompt_tokens",
       kHistogram,
       "tokens",
       {},
       "Prompt of an ended request",
       {"vllm:request_prompt_tokens"},
       tokens},
      {"baton_request_generation_tokens",
       kHistogram,
       "tokens",
       {},
       "Output of an ended request",
       {"vllm:request_generation_tokens"},
       tokens},
      {"baton_request_choices",
       kHistogram,
       "choices",
       {},
       "Choices that a request asked for",
       {"vllm:request_params_n"},
       kChoicesEdges},
      {"baton_prompt_tokens_total",
       kCounter,
       "tokens",
       {},
       "Prompts of ended requests",
       {"vllm:prompt_tokens_total"}},
      {"baton_prompt_tokens_cached_total",
       kCounter,
       "tokens",
       {},
       "Of them: came out of a prefix cache",
       {"vllm:prompt_tokens_cached_total"}},
      {"baton_generation_tokens_total",
       kCounter,
       "tokens",
       {},
       "Output of ended requests",
       {"vllm:generation_tokens_total"}},
      {"baton_prefix_cache_queries_total",
       kCounter,
       "tokens",
       {},
       "Prompt tokens looked up in prefix caches",
       {"vllm:prefix_cache_queries_total"}},
      {"baton_prefix_cache_hits_total",
       kCounter,
       "tokens",
       {},
       "Prompt tokens found in prefix caches",
       {"vllm:prefix_cache_hits_total"}},
  };
}

Infos placement_infos() {
  return {
      {"baton_requests_placed_total",
       kCounter,
       "attempts",
       {"prefill"},
       "Taken by a decode worker; prefill: remote (by handoff), local (it computes the prompt)"},
      {"baton_requests_refused_total", kCounter, "attempts", {}, "Found all candidates full"},
      {"baton_requests_rejected_total",
       kCounter,
       "requests",
       {"reason"},
       "Answered 429 or 503 before a token; reason: queue_full, text_queue_full, ttft, no_worker, "
       "workers_full, shutting_down"},
      {"baton_requests_unanswered_total",
       kCounter,
       "attempts",
       {},
       "Taken from a worker that did not move (route.placed_wait_ms)"},
      {"baton_requests_replayed_total",
       kCounter,
       "attempts",
       {},
       "Repeated after the loss of a worker"},
      {"baton_stale_messages_total", kCounter, "messages", {}, "Of attempts that are over"},
      {"baton_repeated_tokens_total",
       kCounter,
       "tokens",
       {},
       "Came twice: each handoff repeats a choice's first token"},
      {"baton_workers",
       kGauge,
       "workers",
       {"worker_role", "state"},
       "Linked workers. worker_role: prefill, decode, both; state: ready, draining, silent (no "
       "STATUS)"},
      {"baton_workers_prefill", kGauge, "workers", {}, "Linked workers that can prefill"},
      {"baton_workers_decode", kGauge, "workers", {}, "Linked workers that can decode"},
      {"baton_discovery_stale_sources",
       kGauge,
       "sources",
       {},
       "Sources of worker addresses (API server, name service, workers_file) that could not be "
       "asked: what they said before counts"},
      {"baton_worker_pages",
       kGauge,
       "pages",
       {"worker", "state"},
       "KV pages of each worker as it states them; state as in baton_pages. 0 when it is gone"},
      {"baton_worker_kv_usage_ratio",
       kGauge,
       "0 to 1",
       {},
       "Pages in use of the fullest decode worker",
       {"vllm:kv_cache_usage_perc"}},
  };
}

}  // namespace

std::vector<MetricInfo> router_metric_infos(const MetricsConfig& config) {
  std::vector<double> ttft = parse_edges("metrics.ttft_edges_s", config.ttft_edges_s);
  std::vector<double> tpot = parse_edges("metrics.tpot_edges_s", config.tpot_edges_s);
  if (ttft.empty()) ttft = kTtftSecondsEdges;
  if (tpot.empty()) tpot = kInterTokenSecondsEdges;
  check_edge("metrics.ttft_slo_s", config.ttft_slo_s, ttft);
  check_edge("metrics.tpot_slo_s", config.tpot_slo_s, tpot);
  Infos table = latency_infos(ttft, tpot);
  append(table, traffic_infos());
  append(table, placement_infos());
  append(table, link_metric_infos());
  return table;
}

std::string router_metrics_markdown() {
  return "# Metrics\n\nMade by `baton-router --metrics-markdown` and `baton-worker "
         "--metrics-markdown` from the tables that make the series, `router/metric_table.cc` and "
         "`worker/metric_table.cc`. All counters and histograms are there, at 0, from the start "
         "(but for the label values `route`, `status` and names of workers). \"Also as\": the "
         "names under which vLLM tells the same (`metrics.vllm_aliases`). The edges of TTFT and "
         "TPOT are settings, and the objectives must be "
         "edges.\n\n## baton-router\n\n`GET /metrics` on the API's port. Labels of every series: "
         "`model_name`, `engine` (always `0`), `role` (`router`).\n\n" +
         metric_table_markdown(router_metric_infos({}));
}

}  // namespace baton
