// What `baton bench` was asked to do.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

// "fixed:256", "uniform:64,512" or "lognormal:MEAN,SIGMA" (mean of the lengths themselves), clipped
// to [min, max].
struct LengthDistribution {
  enum class Kind : uint8_t { kFixed, kUniform, kLognormal };
  Kind kind = Kind::kFixed;
  double a = 128;
  double b = 0;
  int32_t min = 1;
  int32_t max = 1 << 20;
};

// Throws ConfigError naming the option, what was given and what is wanted.
LengthDistribution parse_lengths(const std::string& option, const std::string& text);

struct BenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string model;                     // empty: the first one of /v1/models
  std::string endpoint = "completions";  // or chat
  std::string prompts = "tokens";        // tokens: random ids; text: words
  std::string prompt_lengths = "fixed:128";
  std::string output_lengths = "fixed:64";
  int32_t prompt_max = 1 << 20;  // clip
  int32_t output_max = 1 << 20;
  int32_t token_id_min = 1000;  // range of random ids
  int32_t token_id_max = 2000;
  double shared_prefix = 0;  // share of each prompt that is the same in all
  int32_t requests = 100;
  double rate = 0;          // requests/s, Poisson, open loop; 0: closed loop with `concurrency`
  int32_t concurrency = 0;  // requests at once; 0: 8 in a closed loop, no cap in an open one
  double temperature = 0;
  uint64_t seed = 0;  // 0: random, printed
  double slo_ttft_ms = 500;
  double slo_tpot_ms = 50;
  double timeout_s = 600;
  bool retry = false;     // refused requests come again after Retry-After, for timeout_s in all
  std::string json_file;  // write the full report here
  bool quiet = false;     // no progress line
};

}  // namespace baton
