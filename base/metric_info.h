// What a process says about its metrics, declared once: a table of families drives /metrics (see
// metrics.h) and docs/metrics.md. Plain values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

// A family of series. Names are baton_* in the field's terms, the unit at the end, counters in
// _total; `aliases` are other names for the same series, as dashboards and autoscalers know them.
struct MetricInfo {
  std::string name;
  MetricType type = MetricType::kCounter;
  std::string unit;                 // "seconds", "tokens", "0 or 1", ...
  std::vector<std::string> labels;  // beyond those that every series of the process has
  std::string help;
  std::vector<std::string> aliases;
  std::vector<double> edges;  // of a histogram: upper bounds, ascending, +Inf left out
};

// Rows of docs/metrics.md: a table with a head.
std::string metric_table_markdown(const std::vector<MetricInfo>& infos);

// Edges of the vLLM histograms, so that one dashboard serves both; they lie on the usual service
// level objectives.
extern const std::vector<double> kTtftSecondsEdges;
// Below 10 ms with finer edges in front, for small models.
extern const std::vector<double> kInterTokenSecondsEdges;
extern const std::vector<double> kRequestSecondsEdges;
// 1, 2, 5, 10, 20, 50, ... and `tokens_max` itself.
std::vector<double> token_count_edges(int64_t tokens_max);

// "0.1,0.5,1" as ascending positive numbers. Throws ConfigError that names `setting`.
std::vector<double> parse_edges(const std::string& setting, const std::string& text);
// An objective between two edges cannot be read off a histogram: ConfigError that names `setting`.
void check_edge(const std::string& setting, double objective, const std::vector<double>& edges);

}  // namespace baton
