// The GPU draws what the CPU draws, whatever the row and the spec.
#include "kernels/sampling/sampling_cuda.h"

#include <cstdio>
#include <limits>
#include <random>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/testing.h"
#include "model/sampler.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr uint64_t kSeed = 20261130;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  std::vector<float> row;
  SamplingSpec spec;
  int32_t choice = 0;
};

std::vector<SampleResult> sample_on_gpu(const std::vector<Case>& cases) {
  const auto vocab = static_cast<int32_t>(cases[0].row.size());
  std::vector<float> logits;
  std::vector<SampleParams> params;
  for (const Case& c : cases) {
    logits.insert(logits.end(), c.row.begin(), c.row.end());
    const ChoiceState state({.spec = c.spec, .choice = c.choice, .prompt_len = 1, .tokens = {0}},
                            1000, vocab);
    params.push_back(Sampler::params(state, static_cast<int32_t>(params.size()), 1));
  }
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<SampleParams> device_params(params);
  const DeviceArray<SampleResult> results(cases.size());
  const auto count = static_cast<int32_t>(cases.size());
  const DeviceArray<std::byte> scratch(static_cast<size_t>(sample_scratch_bytes(count)));
  sample_cuda({.logits = device_logits.data(),
               .vocab_size = vocab,
               .params = device_params.data(),
               .num_samples = count,
               .scratch = scratch.data(),
               .results = results.data()},
              nullptr);
  return results.host();
}

TokenId sample_on_cpu(const Case& c) {
  Sampler sampler(static_cast<int32_t>(c.row.size()));
  return sampler.choose(
      c.row.data(),
      ChoiceState({.spec = c.spec, .choice = c.choice, .prompt_len = 1, .tokens = {0}}, 1000,
                  static_cast<int32_t>(c.row.size())));
}

void check_equal(const std::vector<Case>& cases) {
  const std::vector<SampleResult> results = sample_on_gpu(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    const SamplingSpec& spec = cases[i].spec;
    CAPTURE(i);
    CAPTURE(cases[i].row.size());
    CAPTURE(spec.temperature);
    CAPTURE(spec.top_k);
    CAPTURE(spec.top_p);
    CAPTURE(spec.min_p);
    CHECK(results[i].token == sample_on_cpu(cases[i]));
  }
}

// `spread` in nats between usual tokens; with `steps` > 0 logits are rounded, so that many are
// equal.
std::vector<float> random_row(std::mt19937_64& random, int32_t vocab, float spread, float steps) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& logit : row) {
    logit = normal(random);
    if (steps > 0) logit = static_cast<float>(static_cast<int>(logit * steps)) / steps;
  }
  return row;
}

}  // namespace

TEST_CASE("equal logits, equal choice: temperature, top_k, top_p and min_p in all mixtures") {
  if (no_gpu()) return;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 random(kSeed);
  for (const int32_t vocab : {256, 1000, 49152, 128256}) {
    std::vector<Case> cases;
    for (const float spread : {0.1F, 2.0F, 8.0F}) {
      for (const float steps : {0.0F, 2.0F}) {
        const std::vector<float> row = random_row(random, vocab, spread, steps);
        for (const int32_t top_k : {0, 1, 2, 40, 5000}) {
          for (const float top_p : {1.0F, 0.95F, 0.5F, 0.001F}) {
            const float min_p = random() % 3 == 0 ? 0.05F : 0.0F;
            const float temperature = random() % 2 == 0 ? 1.0F : 0.6F;
            cases.push_back({row,
                             {.seed = random(),
                              .temperature = temperature,
                              .top_k = top_k,
                              .top_p = top_p,
                              .min_p = min_p},
                             static_cast<int32_t>(cases.size())});
          }
        }
      }
    }
    check_equal(cases);
  }
}

TEST_CASE("a flat row, a peak, two equal peaks, infinities and NaN") {
  if (no_gpu()) return;
  std::vector<Case> cases;
  for (const auto& spec :
       {SamplingSpec{.temperature = 0}, SamplingSpec{.seed = 1},
        SamplingSpec{.seed = 2, .top_k = 3}, SamplingSpec{.seed = 3, .top_p = 0.3F},
        SamplingSpec{.seed = 4, .min_p = 1.5F}}) {
    std::vector<float> row(5000, 0.0F);
    cases.push_back({row, spec});
    row[4999] = 9;
    cases.push_back({row, spec});
    row[17] = 9;
    cases.push_back({row, spec});
    row[4000] = -kInfinity;
    row[3] = NAN;
    cases.push_back({row, spec});
    row[8] = kInfinity;
    cases.push_back({row, spec});
    cases.push_back({std::vector<float>(5000, -kInfinity), spec});
    cases.push_back({std::vector<float>(5000, NAN), spec});
  }
  check_equal(cases);
}

TEST_CASE("log-probabilities equal the CPU's to a rounding; NaN in the row shows") {
  if (no_gpu()) return;
  std::mt19937_64 random(kSeed);
  std::vector<Case> cases;
  for (int i = 0; i < 8; ++i) {
    cases.push_back({random_row(random, 49152, 3, 0),
                     {.seed = random(), .temperature = i % 2 == 0 ? 0.0F : 1.0F, .logprobs = 0}});
  }
  cases.push_back(cases[0]);
  cases.back().row[100] = NAN;
  const std::vector<SampleResult> results = sample_on_gpu(cases);
  for (size_t i = 0; i < 8; ++i) {
    const LogSoftmax softmax(cases[i].row.data(), 49152);
    CHECK(results[i].logprob == doctest::Approx(softmax.logprob(results[i].token)).epsilon(1e-5));
  }
  CHECK(std::isnan(results[8].logprob));
}

TEST_CASE("tokens in flight are taken from the results of the step before") {
  if (no_gpu()) return;
  const DeviceArray<int32_t> source(std::vector<int32_t>{7, -1, -3, 0, -2});
  const DeviceArray<SampleResult> last(std::vector<SampleResult>{{11, 0}, {-1, 0}, {13, 0}});
  const DeviceArray<int32_t> tokens(5);
  resolve_tokens_cuda(source.data(), last.data(), tokens.data(), 5, nullptr);
  CHECK(tokens.host() == std::vector<int32_t>{7, 11, 13, 0, 0});
}
