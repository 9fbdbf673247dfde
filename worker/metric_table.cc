#include "worker/metric_table.h"

#include "base/link_metrics.h"

namespace baton {
namespace {

using enum MetricType;
using Infos = std::vector<MetricInfo>;

const std::vector<double> kHandoffSecondsEdges = {.0005, .001, .002, .005, .01, .02, .05, .1,
                                                  .2,    .5,   1,    2,    5,   10,  30};

void append(Infos& table, Infos rows) {
  table.insert(table.end(), rows.begin(), rows.end());
}

Infos load_infos() {
  return {
      {"baton_build_info",
       kGauge,
       "always 1",
       {"version", "commit", "kv_compat_id"},
       "What runs here. Workers share pages only where kv_compat_id is the same"},
      {"baton_cache_config_info",
       kGauge,
       "always 1",
       {"block_size", "num_gpu_blocks"},
       "Tokens of a page and pages of the pool, of the first kv_group",
       {"vllm:cache_config_info"}},
      {"baton_draining", kGauge, "0 or 1", {}, "The worker takes nothing new and ends what it has"},
      {"baton_requests_running",
       kGauge,
       "choices",
       {},
       "In the batch",
       {"vllm:num_requests_running"}},
      {"baton_requests_waiting",
       kGauge,
       "requests",
       {},
       "That have not got their pages",
       {"vllm:num_requests_waiting"}},
  };
}

Infos token_infos() {
  return {
      {"baton_queued_prompt_tokens", kGauge, "tokens", {}, "Of prompts, not computed yet"},
      {"baton_prompt_tokens_total",
       kCounter,
       "tokens",
       {},
       "Of prompts, computed here",
       {"vllm:prompt_tokens_total"}},
      {"baton_generation_tokens_total",
       kCounter,
       "tokens",
       {},
       "Sampled here",
       {"vllm:generation_tokens_total"}},
      {"baton_prefix_cache_queries_total",
       kCounter,
       "tokens",
       {},
       "Asked of the prefix cache",
       {"vllm:prefix_cache_queries_total"}},
      {"baton_prefix_cache_hits_total",
       kCounter,
       "tokens",
       {},
       "Found in the prefix cache",
       {"vllm:prefix_cache_hits_total"}},
      {"baton_steps_total", kCounter, "steps", {}, "Of the engine"},
      {"baton_step_seconds",
       kGauge,
       "seconds",
       {},
       "A typical step without prompts; 0: none so far"},
      {"baton_prefill_tokens_per_second",
       kGauge,
       "tokens/s",
       {},
       "Of the steps that compute prompts; 0: none so far"},
      {"baton_preemptions_total",
       kCounter,
       "choices",
       {},
       "That lost their pages to others, to be computed again",
       {"vllm:num_preemptions_total"}},
      {"baton_deadlines_missed_total",
       kCounter,
       "requests",
       {},
       "Ended here because their time was over"},
      {"baton_handed_back_total",
       kCounter,
       "requests",
       {},
       "Given back to their routers, unfinished: at the end of a drain, or the engine failed"},
      {"baton_stale_messages_total",
       kCounter,
       "messages",
       {},
       "Not allowed from that peer: refused"},
  };
}

Infos page_infos() {
  return {
      {"baton_pages",
       kGauge,
       "pages",
       {"kv_group", "state"},
       "KV pages by state: free, cached, used, granted, quarantined; the sum is the pool"},
      {"baton_pool_pages", kGauge, "pages", {"kv_group"}, "All KV pages there are"},
      {"baton_kv_usage_ratio",
       kGauge,
       "0 to 1",
       {},
       "Pages neither free nor cached",
       {"vllm:kv_cache_usage_perc"}},
      {"baton_pages_oldest_age_seconds",
       kGauge,
       "seconds",
       {"state"},
       "Of the oldest page in a state that waits for a peer: granted, quarantined; 0: there is "
       "none"},
      {"baton_reservations_total",
       kCounter,
       "answers",
       {"answer"},
       "To RESERVE, by this decode worker: granted, full, local (it computes the prompt), gone"},
  };
}

Infos fabric_infos() {
  return {
      {"baton_transport_peers",
       kGauge,
       "workers",
       {"transport"},
       "Decode workers whose pools this prefill worker can write, by transport"},
      {"baton_transport_fallback_peers",
       kGauge,
       "workers",
       {},
       "Of them: not by the first of kvtransfer.transports"},
      {"baton_transport_slowest_gbps",
       kGauge,
       "GB/s",
       {"transport"},
       "The least that was measured at connect, of those peers; 0: there is none"},
      {"baton_kvtransfer_gbps",
       kGauge,
       "GB/s",
       {"peer", "transport"},
       "Measured at connect to that decode worker; 0: it is gone"},
      {"baton_kvtransfer_latency_us",
       kGauge,
       "us",
       {"peer", "transport"},
       "The same of a few bytes, until the sender knows that they have arrived"},
      {"baton_attach_failures_total",
       kCounter,
       "links",
       {},
       "No transport reached the peer's pool"},
  };
}

Infos handoff_infos() {
  return {
      {"baton_reserve_seconds",
       kHistogram,
       "seconds",
       {},
       "From RESERVE to its answer",
       {},
       kHandoffSecondsEdges},
      {"baton_handoffs_pushed_total",
       kCounter,
       "handoffs",
       {"transport"},
       "Prompts whose pages have all been copied by this prefill worker"},
      {"baton_handoff_bytes_total", kCounter, "bytes", {"transport"}, "Of these pages"},
      {"baton_handoff_tail_seconds",
       kHistogram,
       "seconds",
       {"transport"},
       "From a prompt's end to its last copy's: what computing did not hide",
       {},
       kHandoffSecondsEdges},
      {"baton_handoff_exposed_seconds",
       kHistogram,
       "seconds",
       {},
       "From a prompt's last kernel to the decode worker's word that it goes on",
       {},
       kHandoffSecondsEdges},
      {"baton_handoffs_failed_total",
       kCounter,
       "handoffs",
       {},
       "A copy failed or the decode worker was lost; the router replays"},
      {"baton_handoffs_landed_total",
       kCounter,
       "handoffs",
       {},
       "Prompts whose pages have arrived at this decode worker"},
      {"baton_handoff_digest_mismatch_total",
       kCounter,
       "handoffs",
       {},
       "Refused: the pages that arrived are not those sent (kvtransfer.digest)"},
  };
}

}  // namespace

std::vector<MetricInfo> worker_metric_infos() {
  Infos table = load_infos();
  append(table, token_infos());
  append(table, page_infos());
  append(table, fabric_infos());
  append(table, handoff_infos());
  append(table, link_metric_infos());
  return table;
}

std::string worker_metrics_markdown() {
  return "\n## baton-worker\n\n`GET /metrics` on `metrics_listen`. Labels of every series: "
         "`model_name`, `engine` (always `0`), `role` (`prefill`, `decode`, `both`). Workers of "
         "every role tell all of them.\n\n" +
         metric_table_markdown(worker_metric_infos());
}

}  // namespace baton
