// A worker's metrics, as /metrics and docs/metrics.md tell them. Start-up only.
#pragma once

#include <string>
#include <vector>

#include "base/metric_info.h"

namespace baton {

std::vector<MetricInfo> worker_metric_infos();

// The second part of docs/metrics.md; baton-router has the first.
std::string worker_metrics_markdown();

}  // namespace baton
