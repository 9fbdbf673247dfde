// Numbers from the records of a load: percentiles, throughput, goodput.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_client.h"

namespace baton {

struct Percentiles {
  double mean = 0, p50 = 0, p95 = 0, p99 = 0;
};
Percentiles percentiles(std::vector<double> values);  // nearest rank; zeros when empty

struct BenchReport {
  int32_t completed = 0, failed = 0;
  int32_t refused = 0;  // at last answered 429 or 503; neither of the above
  int32_t retries = 0;  // of all requests together
  double duration_s = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  Percentiles ttft_ms, tpot_ms, itl_ms, e2e_ms;
  double goodput_rps = 0;           // completed requests inside both SLOs, a second
  std::vector<std::string> errors;  // the first few different ones
};

BenchReport summarize(const BenchOptions& options, const std::vector<RequestRecord>& records);
std::string report_text(const BenchOptions& options, const BenchReport& report);
// Everything, with machine, commit and configuration, as one JSON object.
std::string report_json(const BenchOptions& options, const BenchReport& report,
                        const std::string& model);

}  // namespace baton
