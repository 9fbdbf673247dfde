// The numbers a worker tells at /metrics; metric_table.h says what each one is. The loop updates
// them; the status server's thread reads text().
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/link_metrics.h"
#include "base/messages.h"
#include "base/metrics.h"
#include "config/config.h"
#include "prefill/handoff_watch.h"
#include "scheduler/prefix_cache.h"

namespace baton {

class WorkerCore;

// What stays as it is while the worker runs.
struct WorkerFacts {
  std::string model_name;
  std::string kv_compat_id;
  int32_t page_tokens = 0;  // of the first kv_group
  int64_t pages = 0;        // likewise
};

class WorkerMetrics final : public HandoffWatch {
 public:
  WorkerMetrics(const WorkerFacts& facts, const WorkerConfig& config);

  // Loop thread, once an iteration; cheap.
  void update(const WorkerCore& core, const PrefixCache& prefix_cache);
  void update_links(const LinkStats& stats) { links_.update(stats); }  // the status server
  std::string text() const { return registry_.text(); }                // thread-safe

  // HandoffWatch: loop thread.
  void reserve_answered(double waited_s) override { reserve_.observe(waited_s); }
  void handoff_pushed(const PushedHandoff& pushed) override;
  void handoff_landed(double exposed_s) override { exposed_.observe(exposed_s); }
  void handoff_failed() override { handoffs_failed_.add(); }
  void attach_failed() override { attach_failures_.add(); }
  void peers_changed(const std::vector<AttachedPeer>& peers) override;

 private:
  // A counter that follows a number which only grows.
  struct Following {
    Counter counter;
    int64_t told = 0;
    void follow(int64_t value) {
      if (value > told) counter.add(static_cast<double>(value - told));
      told = value;
    }
  };
  struct Transport {
    Gauge peers, slowest_gbps;
    Counter handoffs, bytes;
    Histogram tail;
  };
  struct Pair {
    Gauge gbps, latency_us;
  };
  Transport& transport(const std::string& name);
  Pair& pair(const std::string& peer, const std::string& transport);
  Following following(const std::string& name, const MetricLabels& labels = {}) {
    return {registry_.counter(name, labels)};
  }
  Following answer(const char* what) {
    return following("baton_reservations_total", {{"answer", what}});
  }
  void update_pages(const std::vector<PageCounts>& pages);
  Gauge& pages(int32_t group, const std::string& state);

  MetricRegistry registry_;
  LinkMetrics links_{registry_};
  const std::vector<std::string> transports_;  // in order of preference
  Gauge draining_, running_, waiting_, queued_tokens_, step_, prefill_rate_, kv_usage_,
      granted_age_, quarantined_age_, fallback_peers_;
  Following prompt_tokens_, generation_tokens_, steps_, preemptions_, handoffs_landed_,
      digest_mismatches_, stale_messages_, deadlines_missed_, handed_back_, prefix_queries_,
      prefix_hits_, granted_, full_, local_, gone_;
  Counter handoffs_failed_, attach_failures_;
  Histogram reserve_, exposed_;
  std::map<std::string, Transport> by_transport_;
  std::map<std::pair<std::string, std::string>, Pair> by_peer_;  // by worker id and transport
  std::map<std::pair<int32_t, std::string>, Gauge> pages_;
  std::map<int32_t, Gauge> pool_pages_;  // by kv_group
};

}  // namespace baton
