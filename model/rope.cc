#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace baton {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength < rope.original_context_len / rope.high_freq_factor) return frequency;
  if (wavelength > rope.original_context_len / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (rope.original_context_len / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN: dimensions that turn more than beta_fast times within the original context keep their
// frequency, those below beta_slow turns are interpolated, with a ramp between.
double yarn_frequency(const RopeConfig& rope, double frequency, int32_t index) {
  const double dims = rope.rotary_dim;
  const auto dimension_of = [&](double turns) {
    return dims * std::log(rope.original_context_len / (turns * kTwoPi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;
  const double interpolated = std::clamp((index - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * interpolated + frequency * (1 - interpolated);
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope,
                                    const std::vector<float>& freq_factors) {
  const int32_t half = rope.rotary_dim / 2;
  CHECK(freq_factors.empty() || static_cast<int32_t>(freq_factors.size()) == half)
      << freq_factors.size() << " factors for " << half << " frequencies";
  std::vector<float> frequencies;
  for (int32_t i = 0; i < half; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / rope.rotary_dim);
    if (!freq_factors.empty()) frequency /= freq_factors[static_cast<size_t>(i)];
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = llama3_frequency(rope, frequency);
        break;
      case RopeScaling::kYarn:
        frequency = yarn_frequency(rope, frequency, i);
        break;
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

std::vector<float> rope_table(const RopeConfig& rope, const std::vector<float>& freq_factors,
                              int32_t num_positions) {
  const std::vector<float> frequencies = rope_frequencies(rope, freq_factors);
  const size_t half = frequencies.size();
  const double factor = rope.scaling == RopeScaling::kYarn ? rope.attention_factor : 1.0;
  std::vector<float> table(static_cast<size_t>(num_positions) * 2 * half);
  for (int32_t position = 0; position < num_positions; ++position) {
    float* row = table.data() + static_cast<size_t>(position) * 2 * half;
    for (size_t i = 0; i < half; ++i) {
      // The product is rounded to float32 as in the models' training code.
      const double angle = static_cast<float>(position) * frequencies[i];
      row[i] = static_cast<float>(std::cos(angle) * factor);
      row[half + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
  return table;
}

}  // namespace baton
