// Metrics of a process in Prometheus' text format. Parts take handles at construction; whoever
// serves /metrics asks for text(). What there is to count is said in a table (metric_info.h).
// Thread-safe throughout; a change costs tens of nanoseconds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/metric_info.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace baton {

using MetricLabels = std::map<std::string, std::string>;

// Handles are plain references into the registry, which outlives them.
class Counter {
 public:
  explicit Counter(prometheus::Counter& series) : series_(&series) {}
  void add(double count = 1);  // count >= 0

 private:
  prometheus::Counter* series_;
};

class Gauge {
 public:
  explicit Gauge(prometheus::Gauge& series) : series_(&series) {}
  void set(double value);
  void add(double delta);

 private:
  prometheus::Gauge* series_;
};

class Histogram {
 public:
  explicit Histogram(prometheus::Histogram& series) : series_(&series) {}
  void observe(double value);

 private:
  prometheus::Histogram* series_;
};

// Tells nothing that its table does not list, so the documented series are the real ones.
class MetricRegistry {
 public:
  // `common` labels are on every series, as {{"model_name", ...}, {"engine", "0"}}. Aliases are
  // made when the text is: they cost nothing while counting.
  MetricRegistry(MetricLabels common, std::vector<MetricInfo> infos, bool aliases = true);
  ~MetricRegistry();

  // REQUIRES: a row of that name and type, with exactly these labels. The same name and labels give
  // the same series; it is there, at zero, before it is first used.
  Counter counter(const std::string& name, const MetricLabels& labels = {});
  Gauge gauge(const std::string& name, const MetricLabels& labels = {});
  Histogram histogram(const std::string& name, const MetricLabels& labels = {});

  std::string text() const;  // content type kMetricsContentType

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace baton
