#include "worker/worker_metrics.h"

#include <algorithm>

#include "worker/core.h"

namespace baton {
namespace {

constexpr const char* kAgeName = "baton_pages_oldest_age_seconds";
constexpr const char* kAgeHelp = "Age of the oldest page in a state that waits for a peer";

double seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

}  // namespace

WorkerMetrics::WorkerMetrics(const std::string& model_name, const std::string& role)
    : registry_({{"model_name", model_name}, {"role", role}}),
      running_(registry_.gauge("vllm:num_requests_running", "Choices in the batch")),
      waiting_(
          registry_.gauge("vllm:num_requests_waiting", "Requests that have not got their pages")),
      queued_tokens_(
          registry_.gauge("baton_queued_prompt_tokens", "Prompt tokens that are not computed yet")),
      kv_usage_(
          registry_.gauge("vllm:kv_cache_usage_perc", "Share of KV pages that are in use, 0 to 1")),
      granted_age_(registry_.gauge(kAgeName, kAgeHelp, {{"state", "granted"}})),
      quarantined_age_(registry_.gauge(kAgeName, kAgeHelp, {{"state", "quarantined"}})),
      prompt_tokens_{registry_.counter("vllm:prompt_tokens_total", "Prompt tokens computed here")},
      generation_tokens_{registry_.counter("vllm:generation_tokens_total", "Tokens sampled here")},
      steps_{registry_.counter("baton_steps_total", "Steps of the engine")},
      handoffs_{registry_.counter("baton_handoffs_landed_total",
                                  "Prompts whose pages have arrived by handoff")},
      digest_mismatches_{
          registry_.counter("baton_handoff_digest_mismatch_total",
                            "Handoffs refused: the pages that arrived are not those sent")},
      stale_messages_{registry_.counter("baton_stale_messages_total",
                                        "Messages refused: not allowed from that peer")},
      deadlines_missed_{registry_.counter("baton_deadlines_missed_total",
                                          "Requests ended here because their time was over")},
      handed_back_{registry_.counter("baton_handed_back_total",
                                     "Requests given back to their routers, unfinished")},
      prefix_queries_{
          registry_.counter("vllm:prefix_cache_queries_total", "Tokens asked of the prefix cache")},
      prefix_hits_{
          registry_.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache")} {}

Gauge& WorkerMetrics::pages(int32_t group, const std::string& state) {
  const auto found = pages_.find({group, state});
  if (found != pages_.end()) return found->second;
  const Gauge gauge =
      registry_.gauge("baton_pages", "KV pages by state; the states sum to the pool",
                      {{"kv_group", std::to_string(group)}, {"state", state}});
  return pages_.emplace(std::pair(group, state), gauge).first->second;
}

void WorkerMetrics::update(const WorkerStatus& status, const WorkerCounters& counters,
                           const PrefixCache& prefix_cache, const PageAges& ages) {
  running_.set(status.running);
  waiting_.set(status.waiting);
  queued_tokens_.set(static_cast<double>(status.queued_tokens));
  granted_age_.set(seconds(ages.granted_us));
  quarantined_age_.set(seconds(ages.quarantined_us));
  double usage = 0;
  for (size_t g = 0; g < status.pages.size(); ++g) {
    const PageCounts& counts = status.pages[g];
    const auto group = static_cast<int32_t>(g);
    pages(group, "free").set(static_cast<double>(counts.free));
    pages(group, "cached").set(static_cast<double>(counts.cached));
    pages(group, "used").set(static_cast<double>(counts.used));
    pages(group, "granted").set(static_cast<double>(counts.granted));
    pages(group, "quarantined").set(static_cast<double>(counts.quarantined));
    const auto taken = static_cast<double>(counts.total - counts.free - counts.cached);
    usage = std::max(usage, taken / std::max<double>(static_cast<double>(counts.total), 1));
  }
  kv_usage_.set(usage);
  prompt_tokens_.follow(counters.prompt_tokens);
  generation_tokens_.follow(counters.generation_tokens);
  steps_.follow(counters.steps);
  handoffs_.follow(counters.handoffs_landed);
  digest_mismatches_.follow(counters.digest_mismatches);
  stale_messages_.follow(counters.stale_messages);
  deadlines_missed_.follow(counters.deadlines_missed);
  handed_back_.follow(counters.handed_back);
  prefix_queries_.follow(prefix_cache.queries_tokens());
  prefix_hits_.follow(prefix_cache.hits_tokens());
}

}  // namespace baton
