// Sends a planned load over HTTP and records when each token arrived. One thread, libcurl's multi
// interface.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/bench_workload.h"

namespace baton {

struct RequestRecord {
  int64_t start_us =
      0;  // when it should have been sent: a client that falls behind makes latency, not less load
  int64_t first_us = 0;  // first token; 0 = none came
  int64_t end_us = 0;
  std::vector<int64_t> chunk_us;  // arrival of each chunk with text or tokens
  int32_t prompt_tokens = 0;      // as the server counted them
  int32_t output_tokens = 0;
  int32_t cached_tokens = 0;
  long http_status = 0;
  int32_t retries = 0;  // after a refusal
  std::string error;    // empty: completed, with [DONE]

  // The server said that it has no room now.
  bool refused() const { return http_status == 429 || http_status == 503; }
};

struct LoadProgress {
  int32_t sent = 0, done = 0, failed = 0, refused = 0, running = 0;
  int64_t tokens = 0;
  int64_t elapsed_us = 0;
};

// `on_progress` about twice a second.
std::vector<RequestRecord> run_load(const BenchOptions& options,
                                    const std::vector<PlannedRequest>& plan,
                                    const std::function<void(const LoadProgress&)>& on_progress);

// The name of the first served model. Throws ConfigError when the server does not answer.
std::string first_model(const std::string& url);

}  // namespace baton
