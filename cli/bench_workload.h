// The load: what is sent and when, all decided before the first request by one printed seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_options.h"

namespace baton {

struct PlannedRequest {
  int64_t start_us = 0;       // after the beginning of the run; 0 for all in a closed loop
  std::string body;           // JSON
  int32_t prompt_tokens = 0;  // asked for; words for text prompts
  int32_t output_tokens = 0;
};

// Ignores EOS, so that output lengths are as planned.
std::vector<PlannedRequest> plan_workload(const BenchOptions& options, const std::string& model);

}  // namespace baton
