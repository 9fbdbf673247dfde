// The baton_link_* series, the same for routers and workers. Owned by their metrics; the loop's
// thread updates.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/link_stats.h"
#include "base/metrics.h"

namespace baton {

std::vector<MetricInfo> link_metric_infos();

class LinkMetrics {
 public:
  explicit LinkMetrics(MetricRegistry& registry);  // borrowed; knows link_metric_infos()
  void update(const LinkStats& stats);

 private:
  MetricRegistry& registry_;
  LinkStats told_;  // so far
  Gauge peers_, outbox_bytes_;
  Counter reconnects_, bytes_in_, bytes_out_;
  std::map<std::string, Counter> handshake_failures_;  // by reason
};

}  // namespace baton
