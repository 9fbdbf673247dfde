#include "base/metrics.h"

#include <algorithm>

#include "base/status.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using enum MetricType;

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

std::vector<MetricInfo> table() {
  return {
      {"baton_requests_ended_total",
       kCounter,
       "requests",
       {"finished_reason"},
       "Ended.",
       {"vllm:request_success_total"}},
      {"baton_running", kGauge, "requests", {}, "Running."},
      {"baton_ttft_seconds",
       kHistogram,
       "seconds",
       {},
       "TTFT.",
       {"vllm:time_to_first_token_seconds"},
       kTtftSecondsEdges},
  };
}

std::string config_error(const std::string& text) {
  try {
    parse_edges("metrics.ttft_edges_s", text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("series are there at zero, count, and carry the common labels") {
  MetricRegistry metrics(MetricLabels{{"model_name", "m"}}, table());
  Counter stopped = metrics.counter("baton_requests_ended_total", {{"finished_reason", "stop"}});
  const char* line = "baton_requests_ended_total{finished_reason=\"stop\",model_name=\"m\"} ";
  CHECK(has_line(metrics.text(), line + std::string("0")));
  stopped.add();
  metrics.counter("baton_requests_ended_total", {{"finished_reason", "stop"}}).add(2);
  CHECK(has_line(metrics.text(), line + std::string("3")));
  CHECK(has_line(metrics.text(), "# TYPE baton_requests_ended_total counter"));

  Gauge running = metrics.gauge("baton_running");
  running.set(5);
  running.add(-2);
  CHECK(has_line(metrics.text(), "baton_running{model_name=\"m\"} 3"));
}

TEST_CASE("histograms are cumulative up to +Inf, on the edges of service level objectives") {
  MetricRegistry metrics({}, table());
  Histogram ttft = metrics.histogram("baton_ttft_seconds");
  for (const double seconds : {0.0005, 0.3, 0.6, 9999.0}) ttft.observe(seconds);
  const std::string text = metrics.text();
  CHECK(has_line(text, "baton_ttft_seconds_bucket{le=\"0.5\"} 2"));
  CHECK(has_line(text, "baton_ttft_seconds_bucket{le=\"1\"} 3"));
  CHECK(has_line(text, "baton_ttft_seconds_bucket{le=\"2560\"} 3"));
  CHECK(has_line(text, "baton_ttft_seconds_bucket{le=\"+Inf\"} 4"));
  CHECK(has_line(text, "baton_ttft_seconds_count 4"));
}

TEST_CASE("an alias tells the same series under another name, and can be left out") {
  MetricRegistry metrics({}, table());
  metrics.histogram("baton_ttft_seconds").observe(0.3);
  const std::string text = metrics.text();
  CHECK(has_line(text, "# TYPE vllm:time_to_first_token_seconds histogram"));
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_bucket{le=\"0.5\"} 1"));
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_count 1"));

  MetricRegistry plain({}, table(), /*aliases=*/false);
  (void)plain.histogram("baton_ttft_seconds");
  CHECK(plain.text().find("vllm:") == std::string::npos);
}

TEST_CASE("label values are escaped") {
  MetricRegistry metrics(MetricLabels{{"model_name", "a\\b\"c\nd"}}, table());
  (void)metrics.gauge("baton_running");
  CHECK(has_line(metrics.text(), "baton_running{model_name=\"a\\\\b\\\"c\\nd\"} 0"));
}

TEST_CASE("edges ascend") {
  CHECK((token_count_edges(2048) ==
         std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 2048}));
  CHECK((token_count_edges(1) == std::vector<double>{1}));
  for (const auto& edges : {kTtftSecondsEdges, kInterTokenSecondsEdges, kRequestSecondsEdges})
    CHECK(std::is_sorted(edges.begin(), edges.end()));
}

TEST_CASE("edges are read from a text, and say what is wrong with one") {
  CHECK((parse_edges("s", "0.1,0.5,1") == std::vector<double>{.1, .5, 1}));
  CHECK(parse_edges("s", "").empty());
  for (const char* text : {"a", "nan", "inf", "0.5,0.1", "0.1,0.1", "0", "-1,2", "1 2", "1,,2"}) {
    INFO(text);
    CHECK(config_error(text).find("metrics.ttft_edges_s: got \"") == 0);
  }
}

TEST_CASE("an objective must be an edge") {
  check_edge("metrics.ttft_slo_s", 0.5, {.1, .5, 1});
  try {
    check_edge("metrics.ttft_slo_s", 0.3, {.1, .5, 1});
    FAIL("taken");
  } catch (const ConfigError& error) {
    CHECK(std::string(error.what()) ==
          "metrics.ttft_slo_s: got 0.3, want one of the histogram's edges: 0.1 0.5 1");
  }
}

TEST_CASE("the page lists name, type, unit, labels, edges, meaning and aliases") {
  const std::string page = metric_table_markdown(table());
  CHECK(page.find("| `baton_requests_ended_total` | counter | requests | `finished_reason` |  | "
                  "Ended. | `vllm:request_success_total` |\n") != std::string::npos);
  CHECK(page.find("0.001 0.005 0.01") != std::string::npos);
}

}  // namespace
}  // namespace baton
