#include "base/metric_info.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/status.h"

namespace baton {
namespace {

// As /metrics prints the edge of a bucket: le="0.5", le="1".
std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  return {text, end};
}

std::string joined(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : " ") + number_text(value);
  return text;
}

std::string joined_code(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "`" : ", `") + value + "`";
  return text;
}

const char* type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

}  // namespace

const std::vector<double> kTtftSecondsEdges = {.001, .005, .01, .02, .04, .06, .08, .1,
                                               .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                               20,   40,   80,  160, 640, 2560};
const std::vector<double> kInterTokenSecondsEdges = {.002, .004, .006, .008, .01, .025, .05, .075,
                                                     .1,   .15,  .2,   .3,   .4,  .5,   .75, 1,
                                                     2.5,  5,    7.5,  10,   20,  40,   80};
const std::vector<double> kRequestSecondsEdges = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                                  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

std::vector<double> token_count_edges(int64_t tokens_max) {
  std::vector<double> edges;
  for (int64_t decade = 1; decade < tokens_max; decade *= 10)
    for (const int64_t step : {1, 2, 5})
      if (step * decade < tokens_max) edges.push_back(static_cast<double>(step * decade));
  edges.push_back(static_cast<double>(tokens_max));
  return edges;
}

std::vector<double> parse_edges(const std::string& setting, const std::string& text) {
  std::vector<double> edges;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    double edge = 0;
    const char* end = item.data() + item.size();
    const auto parsed = std::from_chars(item.data(), end, edge);
    const bool ascends = std::isfinite(edge) && edge > (edges.empty() ? 0 : edges.back());
    if (parsed.ec != std::errc() || parsed.ptr != end || !ascends)
      throw ConfigError(setting + ": got \"" + item + "\" in \"" + text +
                        "\", want numbers of seconds above 0, ascending, separated by commas");
    edges.push_back(edge);
  }
  return edges;
}

void check_edge(const std::string& setting, double objective, const std::vector<double>& edges) {
  if (std::find(edges.begin(), edges.end(), objective) != edges.end()) return;
  throw ConfigError(setting + ": got " + number_text(objective) +
                    ", want one of the histogram's edges: " + joined(edges));
}

std::string metric_table_markdown(const std::vector<MetricInfo>& infos) {
  std::string text =
      "| name | type | unit | labels | buckets | meaning | also as "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const MetricInfo& info : infos) {
    text += "| `" + info.name + "` | " + type_name(info.type) + " | " + info.unit + " | " +
            joined_code(info.labels) + " | " + joined(info.edges) + " | " + info.help + " | " +
            joined_code(info.aliases) + " |\n";
  }
  return text;
}

}  // namespace baton
