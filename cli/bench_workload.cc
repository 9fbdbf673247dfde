#include "cli/bench_workload.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/status.h"

namespace baton {

namespace {

using Random = std::mt19937_64;

// Everyday words, about one token each in common vocabularies.
constexpr const char* kWords[] = {
    "the",  "river",  "carries", "a",    "small", "boat",  "past",  "old",   "stone", "walls",
    "and",  "people", "watch",   "from", "their", "open",  "doors", "while", "light", "fades",
    "over", "green",  "fields",  "near", "town",  "where", "two",   "roads", "meet",  "again"};

int32_t draw(const LengthDistribution& lengths, int32_t cap, Random& random) {
  double value = lengths.a;
  if (lengths.kind == LengthDistribution::Kind::kUniform) {
    value = std::uniform_real_distribution<double>(lengths.a, lengths.b + 1)(random);
  } else if (lengths.kind == LengthDistribution::Kind::kLognormal) {
    const double mu = std::log(lengths.a) - lengths.b * lengths.b / 2;  // so that the mean is a
    value = std::lognormal_distribution<double>(mu, lengths.b)(random);
  }
  const double most = std::min<double>(lengths.max, cap);
  return static_cast<int32_t>(
      std::clamp(std::floor(value), static_cast<double>(lengths.min), most));
}

std::string text_prompt(int32_t words, int32_t shared, Random& shared_random, Random& random) {
  std::string text;
  for (int32_t i = 0; i < words; ++i) {
    Random& source = i < shared ? shared_random : random;
    if (i > 0) text += ' ';
    text += kWords[source() % std::size(kWords)];
  }
  return text;
}

std::vector<int32_t> token_prompt(const BenchOptions& options, int32_t tokens, int32_t shared,
                                  Random& shared_random, Random& random) {
  std::uniform_int_distribution<int32_t> ids(options.token_id_min, options.token_id_max);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < tokens; ++i) prompt.push_back(ids(i < shared ? shared_random : random));
  return prompt;
}

}  // namespace

LengthDistribution parse_lengths(const std::string& option, const std::string& text) {
  LengthDistribution lengths;
  char tail = 0;
  double a = 0;
  double b = 0;
  if (std::sscanf(text.c_str(), "fixed:%lf%c", &a, &tail) == 1) {
    lengths = {LengthDistribution::Kind::kFixed, a, 0};
  } else if (std::sscanf(text.c_str(), "uniform:%lf,%lf%c", &a, &b, &tail) == 2 && a <= b) {
    lengths = {LengthDistribution::Kind::kUniform, a, b};
  } else if (std::sscanf(text.c_str(), "lognormal:%lf,%lf%c", &a, &b, &tail) == 2 && b >= 0) {
    lengths = {LengthDistribution::Kind::kLognormal, a, b};
  } else {
    throw ConfigError(option + ": got \"" + text +
                      "\", want fixed:N, uniform:A,B or lognormal:MEAN,SIGMA");
  }
  if (a < 1) throw ConfigError(option + ": got \"" + text + "\", want lengths of at least 1");
  return lengths;
}

std::vector<PlannedRequest> plan_workload(const BenchOptions& options, const std::string& model) {
  const LengthDistribution prompts = parse_lengths("--prompt-lengths", options.prompt_lengths);
  const LengthDistribution outputs = parse_lengths("--output-lengths", options.output_lengths);
  Random random(options.seed);
  std::exponential_distribution<double> gap(options.rate > 0 ? options.rate : 1);
  double start_s = 0;
  std::vector<PlannedRequest> plan;
  for (int32_t i = 0; i < options.requests; ++i) {
    PlannedRequest request;
    request.prompt_tokens = draw(prompts, options.prompt_max, random);
    request.output_tokens = draw(outputs, options.output_max, random);
    const auto shared = static_cast<int32_t>(options.shared_prefix * request.prompt_tokens);
    Random shared_random(options.seed ^ 0x5eedULL);

    nlohmann::json body = {{"model", model},        {"stream", true},
                           {"ignore_eos", true},    {"temperature", options.temperature},
                           {"seed", random() >> 1}, {"stream_options", {{"include_usage", true}}}};
    nlohmann::json prompt;
    if (options.prompts == "tokens") {
      prompt = token_prompt(options, request.prompt_tokens, shared, shared_random, random);
    } else {
      prompt = text_prompt(request.prompt_tokens, shared, shared_random, random);
    }
    if (options.endpoint == "chat") {
      body["messages"] = {{{"role", "user"}, {"content", prompt}}};
      body["max_completion_tokens"] = request.output_tokens;
    } else {
      body["prompt"] = std::move(prompt);
      body["max_tokens"] = request.output_tokens;
    }
    request.body = body.dump();
    if (options.rate > 0) {
      start_s += gap(random);
      request.start_us = static_cast<int64_t>(start_s * 1e6);
    }
    plan.push_back(std::move(request));
  }
  return plan;
}

}  // namespace baton
