// The numbers a worker tells at /metrics. The loop updates them; the status server's thread reads
// text().
#pragma once

#include <string>
#include <vector>

#include "base/link_metrics.h"
#include "base/messages.h"
#include "base/metrics.h"
#include "scheduler/prefix_cache.h"

namespace baton {

struct PageAges;
struct WorkerCounters;

class WorkerMetrics {
 public:
  WorkerMetrics(const std::string& model_name, const std::string& role);

  // Loop thread, once an iteration; cheap.
  void update(const WorkerStatus& status, const WorkerCounters& counters,
              const PrefixCache& prefix_cache, const PageAges& ages);
  void update_links(const LinkStats& stats) { links_.update(stats); }  // the status server
  std::string text() const { return registry_.text(); }                // thread-safe

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
  Gauge& pages(int32_t group, const std::string& state);

  MetricRegistry registry_;
  LinkMetrics links_{registry_};
  Gauge running_, waiting_, queued_tokens_, kv_usage_, granted_age_, quarantined_age_;
  Following prompt_tokens_, generation_tokens_, steps_, handoffs_, digest_mismatches_,
      stale_messages_, deadlines_missed_, handed_back_, prefix_queries_, prefix_hits_;
  std::map<std::pair<int32_t, std::string>, Gauge> pages_;
};

}  // namespace baton
