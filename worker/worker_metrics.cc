#include "worker/worker_metrics.h"

#include <algorithm>
#include <sstream>

#include "base/build_info.h"
#include "worker/core.h"
#include "worker/metric_table.h"

namespace baton {
namespace {

constexpr const char* kAge = "baton_pages_oldest_age_seconds";

double seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

std::vector<std::string> names_of(const std::string& transports) {
  std::vector<std::string> names;
  std::istringstream items(transports);
  for (std::string name; std::getline(items, name, ',');) names.push_back(name);
  return names;
}

}  // namespace

WorkerMetrics::WorkerMetrics(const WorkerFacts& facts, const WorkerConfig& config)
    : registry_({{"model_name", facts.model_name}, {"engine", "0"}, {"role", config.role}},
                worker_metric_infos(), config.vllm_aliases),
      transports_(names_of(config.kvtransfer.transports)),
      draining_(registry_.gauge("baton_draining")),
      running_(registry_.gauge("baton_requests_running")),
      waiting_(registry_.gauge("baton_requests_waiting")),
      queued_tokens_(registry_.gauge("baton_queued_prompt_tokens")),
      step_(registry_.gauge("baton_step_seconds")),
      prefill_rate_(registry_.gauge("baton_prefill_tokens_per_second")),
      kv_usage_(registry_.gauge("baton_kv_usage_ratio")),
      granted_age_(registry_.gauge(kAge, {{"state", "granted"}})),
      quarantined_age_(registry_.gauge(kAge, {{"state", "quarantined"}})),
      fallback_peers_(registry_.gauge("baton_transport_fallback_peers")),
      prompt_tokens_(following("baton_prompt_tokens_total")),
      generation_tokens_(following("baton_generation_tokens_total")),
      steps_(following("baton_steps_total")),
      preemptions_(following("baton_preemptions_total")),
      handoffs_landed_(following("baton_handoffs_landed_total")),
      digest_mismatches_(following("baton_handoff_digest_mismatch_total")),
      stale_messages_(following("baton_stale_messages_total")),
      deadlines_missed_(following("baton_deadlines_missed_total")),
      handed_back_(following("baton_handed_back_total")),
      prefix_queries_(following("baton_prefix_cache_queries_total")),
      prefix_hits_(following("baton_prefix_cache_hits_total")),
      granted_(answer("granted")),
      full_(answer("full")),
      local_(answer("local")),
      gone_(answer("gone")),
      handoffs_failed_(registry_.counter("baton_handoffs_failed_total")),
      attach_failures_(registry_.counter("baton_attach_failures_total")),
      reserve_(registry_.histogram("baton_reserve_seconds")),
      exposed_(registry_.histogram("baton_handoff_exposed_seconds")) {
  const BuildInfo build = build_info();
  registry_
      .gauge("baton_build_info", {{"version", build.version},
                                  {"commit", build.commit},
                                  {"kv_compat_id", facts.kv_compat_id}})
      .set(1);
  registry_
      .gauge("baton_cache_config_info", {{"block_size", std::to_string(facts.page_tokens)},
                                         {"num_gpu_blocks", std::to_string(facts.pages)}})
      .set(1);
  for (const std::string& name : transports_) transport(name);
  pair("", "");  // so that the series are there before the first peer
}

WorkerMetrics::Transport& WorkerMetrics::transport(const std::string& name) {
  const auto found = by_transport_.find(name);
  if (found != by_transport_.end()) return found->second;
  const MetricLabels labels = {{"transport", name}};
  return by_transport_
      .emplace(name, Transport{registry_.gauge("baton_transport_peers", labels),
                               registry_.gauge("baton_transport_slowest_gbps", labels),
                               registry_.counter("baton_handoffs_pushed_total", labels),
                               registry_.counter("baton_handoff_bytes_total", labels),
                               registry_.histogram("baton_handoff_tail_seconds", labels)})
      .first->second;
}

void WorkerMetrics::handoff_pushed(const PushedHandoff& pushed) {
  Transport& series = transport(pushed.transport);
  series.handoffs.add();
  series.bytes.add(static_cast<double>(pushed.bytes));
  series.tail.observe(pushed.tail_s);
}

void WorkerMetrics::peers_changed(const std::vector<AttachedPeer>& peers) {
  struct Seen {
    int count = 0;
    double slowest_gbps = 0;
  };
  std::map<std::string, Seen> seen;
  int fallbacks = 0;
  for (const AttachedPeer& peer : peers) {
    Seen& of = seen[peer.transport];
    of.slowest_gbps = of.count == 0 ? peer.gbps : std::min(of.slowest_gbps, peer.gbps);
    ++of.count;
    if (!transports_.empty() && peer.transport != transports_.front()) ++fallbacks;
    transport(peer.transport);
  }
  for (auto& [name, series] : by_transport_) {
    series.peers.set(seen[name].count);
    series.slowest_gbps.set(seen[name].slowest_gbps);
  }
  fallback_peers_.set(fallbacks);
  for (auto& [key, one] : by_peer_) {
    one.gbps.set(0);
    one.latency_us.set(0);
  }
  for (const AttachedPeer& peer : peers) {
    Pair& one = pair(peer.peer, peer.transport);
    one.gbps.set(peer.gbps);
    one.latency_us.set(peer.latency_us);
  }
}

WorkerMetrics::Pair& WorkerMetrics::pair(const std::string& peer, const std::string& transport) {
  const MetricLabels labels = {{"peer", peer}, {"transport", transport}};
  return by_peer_
      .try_emplace({peer, transport}, Pair{registry_.gauge("baton_kvtransfer_gbps", labels),
                                           registry_.gauge("baton_kvtransfer_latency_us", labels)})
      .first->second;
}

Gauge& WorkerMetrics::pages(int32_t group, const std::string& state) {
  const auto found = pages_.find({group, state});
  if (found != pages_.end()) return found->second;
  const Gauge gauge =
      registry_.gauge("baton_pages", {{"kv_group", std::to_string(group)}, {"state", state}});
  return pages_.emplace(std::pair(group, state), gauge).first->second;
}

void WorkerMetrics::update_pages(const std::vector<PageCounts>& counts_per_group) {
  double usage = 0;
  for (size_t g = 0; g < counts_per_group.size(); ++g) {
    const PageCounts& counts = counts_per_group[g];
    const auto group = static_cast<int32_t>(g);
    pages(group, "free").set(static_cast<double>(counts.free));
    pages(group, "cached").set(static_cast<double>(counts.cached));
    pages(group, "used").set(static_cast<double>(counts.used));
    pages(group, "granted").set(static_cast<double>(counts.granted));
    pages(group, "quarantined").set(static_cast<double>(counts.quarantined));
    auto pool = pool_pages_.find(group);
    if (pool == pool_pages_.end()) {
      const MetricLabels labels = {{"kv_group", std::to_string(group)}};
      pool = pool_pages_.emplace(group, registry_.gauge("baton_pool_pages", labels)).first;
    }
    pool->second.set(static_cast<double>(counts.total));
    const auto taken = static_cast<double>(counts.total - counts.free - counts.cached);
    usage = std::max(usage, taken / std::max<double>(static_cast<double>(counts.total), 1));
  }
  kv_usage_.set(usage);
}

void WorkerMetrics::update(const WorkerCore& core, const PrefixCache& prefix_cache) {
  const WorkerStatus status = core.status();
  draining_.set(status.draining ? 1 : 0);
  running_.set(status.running);
  waiting_.set(status.waiting);
  queued_tokens_.set(static_cast<double>(status.queued_tokens));
  step_.set(status.step_ms * 1e-3);
  prefill_rate_.set(status.prefill_tokens_per_s);
  update_pages(status.pages);
  const PageAges ages = core.page_ages();
  granted_age_.set(seconds(ages.granted_us));
  quarantined_age_.set(seconds(ages.quarantined_us));
  const WorkerCounters& counters = core.counters();
  prompt_tokens_.follow(counters.prompt_tokens);
  generation_tokens_.follow(counters.generation_tokens);
  steps_.follow(counters.steps);
  preemptions_.follow(core.preemptions());
  handoffs_landed_.follow(counters.handoffs_landed);
  digest_mismatches_.follow(counters.digest_mismatches);
  stale_messages_.follow(counters.stale_messages);
  deadlines_missed_.follow(counters.deadlines_missed);
  handed_back_.follow(counters.handed_back);
  const LandingSide::Counts& landing = core.landing_side().counts();
  granted_.follow(landing.granted);
  full_.follow(landing.full);
  local_.follow(landing.local);
  gone_.follow(landing.gone);
  prefix_queries_.follow(prefix_cache.queries_tokens());
  prefix_hits_.follow(prefix_cache.hits_tokens());
}

}  // namespace baton
