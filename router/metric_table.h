// The router's metrics, as /metrics and docs/metrics.md tell them. Start-up only.
#pragma once

#include <string>
#include <vector>

#include "base/metric_info.h"
#include "config/config.h"

namespace baton {

// Throws ConfigError for edges that are none, and for an objective that is no edge.
std::vector<MetricInfo> router_metric_infos(const MetricsConfig& config);

// The first part of docs/metrics.md; baton-worker has the second.
std::string router_metrics_markdown();

}  // namespace baton
