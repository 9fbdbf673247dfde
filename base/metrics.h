// Metrics of a process in Prometheus' text format. Parts take handles at construction; whoever
// serves /metrics asks for text(). Names: baton_* in the field's terms, and the vllm: names that
// dashboards, autoscalers and gateways read; counters end in _total. Thread-safe throughout; a
// change costs tens of nanoseconds.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

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

class MetricRegistry {
 public:
  // `common` labels are on every series, as {{"model_name", ...}, {"engine", "0"}}.
  explicit MetricRegistry(MetricLabels common = {});
  ~MetricRegistry();

  // The same name and labels give the same series, so a series is there, at zero, before it is
  // first used.
  Counter counter(const std::string& name, const std::string& help,
                  const MetricLabels& labels = {});
  Gauge gauge(const std::string& name, const std::string& help, const MetricLabels& labels = {});
  // `edges`: upper bounds, ascending; those of one name are always the same.
  Histogram histogram(const std::string& name, const std::string& help,
                      const std::vector<double>& edges, const MetricLabels& labels = {});

  std::string text() const;  // content type kMetricsContentType

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// Edges of the vLLM histograms, so that one dashboard serves both; they lie on the usual service
// level objectives.
extern const std::vector<double> kTtftSecondsEdges;
// Below 10 ms with finer edges in front, for small models.
extern const std::vector<double> kInterTokenSecondsEdges;
extern const std::vector<double> kRequestSecondsEdges;
extern const std::vector<double> kStepTokensEdges;
// 1, 2, 5, 10, 20, 50, ... and `tokens_max` itself.
std::vector<double> token_count_edges(int64_t tokens_max);

}  // namespace baton
