#include "base/metrics.h"

#include <algorithm>

#include "tests/doctest.h"

namespace baton {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST_CASE("series are there at zero, count, and carry the common labels") {
  MetricRegistry metrics(MetricLabels{{"model_name", "m"}});
  Counter stopped =
      metrics.counter("vllm:request_success_total", "Ended.", {{"finished_reason", "stop"}});
  const char* line = "vllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"} ";
  CHECK(has_line(metrics.text(), line + std::string("0")));
  stopped.add();
  metrics.counter("vllm:request_success_total", "Ended.", {{"finished_reason", "stop"}}).add(2);
  CHECK(has_line(metrics.text(), line + std::string("3")));
  CHECK(has_line(metrics.text(), "# TYPE vllm:request_success_total counter"));

  Gauge running = metrics.gauge("vllm:num_requests_running", "Running.");
  running.set(5);
  running.add(-2);
  CHECK(has_line(metrics.text(), "vllm:num_requests_running{model_name=\"m\"} 3"));
}

TEST_CASE("histograms are cumulative up to +Inf, on the edges of service level objectives") {
  MetricRegistry metrics;
  Histogram ttft =
      metrics.histogram("vllm:time_to_first_token_seconds", "TTFT.", kTtftSecondsEdges);
  for (const double seconds : {0.0005, 0.3, 0.6, 9999.0}) ttft.observe(seconds);
  const std::string text = metrics.text();
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_bucket{le=\"0.5\"} 2"));
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_bucket{le=\"1\"} 3"));
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_bucket{le=\"2560\"} 3"));
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 4"));
  CHECK(has_line(text, "vllm:time_to_first_token_seconds_count 4"));
}

TEST_CASE("label values are escaped") {
  MetricRegistry metrics(MetricLabels{{"model_name", "a\\b\"c\nd"}});
  (void)metrics.gauge("g", "A gauge.");
  CHECK(has_line(metrics.text(), "g{model_name=\"a\\\\b\\\"c\\nd\"} 0"));
}

TEST_CASE("edges ascend") {
  CHECK((token_count_edges(2048) ==
         std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 2048}));
  CHECK((token_count_edges(1) == std::vector<double>{1}));
  for (const auto& edges :
       {kTtftSecondsEdges, kInterTokenSecondsEdges, kRequestSecondsEdges, kStepTokensEdges})
    CHECK(std::is_sorted(edges.begin(), edges.end()));
}

}  // namespace
}  // namespace baton
