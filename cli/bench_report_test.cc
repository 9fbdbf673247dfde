#include "cli/bench_report.h"

#include "base/status.h"

#include "tests/doctest.h"

using namespace baton;

TEST_CASE("percentiles are nearest rank") {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(101 - i);
  const Percentiles p = percentiles(values);
  CHECK(p.p50 == 50);
  CHECK(p.p95 == 95);
  CHECK(p.p99 == 99);
  CHECK(p.mean == doctest::Approx(50.5));
  CHECK(percentiles({}).p99 == 0);
}

TEST_CASE("goodput counts requests inside both SLOs; failures count as failures") {
  BenchOptions options;
  options.slo_ttft_ms = 100;
  options.slo_tpot_ms = 10;
  const auto record = [](int64_t ttft_us, int64_t gap_us, const char* error) {
    RequestRecord r;
    r.start_us = 1'000'000;
    r.first_us = r.start_us + ttft_us;
    r.chunk_us = {r.first_us, r.first_us + gap_us};
    r.end_us = 2'000'000;
    r.output_tokens = 2;
    r.error = error;
    return r;
  };
  const BenchReport report =
      summarize(options, {record(50'000, 5'000, ""), record(200'000, 5'000, ""),
                          record(50'000, 50'000, ""), record(1, 1, "HTTP 500")});
  CHECK(report.completed == 3);
  CHECK(report.failed == 1);
  CHECK(report.goodput_rps == doctest::Approx(1.0));
  CHECK(report.tpot_ms.p50 == 5);
}

TEST_CASE("what the server refuses is no failure, and counts apart") {
  RequestRecord refused;
  refused.http_status = 429;
  refused.error = "HTTP 429: overloaded";
  RequestRecord retried;
  retried.http_status = 200;
  retried.retries = 2;
  RequestRecord broken;
  broken.http_status = 200;
  broken.error = "the stream ended without [DONE]";
  const BenchReport report = summarize({}, {refused, retried, broken});
  CHECK(report.refused == 1);
  CHECK(report.completed == 1);
  CHECK(report.failed == 1);
  CHECK(report.retries == 2);
  CHECK(report.errors == std::vector<std::string>{"the stream ended without [DONE]"});
}

TEST_CASE("lengths are parsed, or refused with the option's name") {
  CHECK(parse_lengths("--x", "uniform:2,9").b == 9);
  CHECK_THROWS_WITH_AS(parse_lengths("--x", "fixed:abc"),
                       "--x: got \"fixed:abc\", want fixed:N, uniform:A,B or lognormal:MEAN,SIGMA",
                       ConfigError);
}
