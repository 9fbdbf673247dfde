#include "model/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/sampling/sampling.h"
#include "model/random.h"

namespace baton {
namespace {

constexpr float kGreedyTemperature = 1e-5F;  // below it, as 0

// e^x for x in [-87, 0] to 2 ulp, free of branches and calls, so that the loop over a vocabulary
// becomes vector code. kernels/sampling/sample_cut.cuh has its twin.
float exp_of_negative(float x) {
  constexpr float kRound =
      12582912.0F;  // 1.5 * 2^23: adding and taking it away rounds to an integer
  const float powers = (x * 1.44269504F + kRound) - kRound;
  const float rest = (x - powers * 0.693359375F) + powers * 2.12194440e-4F;  // ln 2 in two parts
  float sum = 1.0F / 720;
  for (const float term : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    sum = sum * rest + term;
  }
  return sum * std::bit_cast<float>((static_cast<int32_t>(powers) + 127) << 23);
}

// Exact: a float of at most 1 has its last bit above 2^-kWeightBits, or loses what is below it.
uint64_t whole(float weight) {
  return static_cast<uint64_t>(weight * static_cast<float>(uint64_t{1} << kWeightBits));
}

bool is_greedy(const SamplingSpec& spec) {
  return spec.temperature < kGreedyTemperature || spec.top_k == 1;
}

constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
};

}  // namespace

TokenId arg_max(const float* logits, int32_t vocab_size) {
  constexpr int32_t kLanes = 16;  // independent maxima, so that the compiler can use vectors
  std::array<float, kLanes> largest;
  largest.fill(-std::numeric_limits<float>::infinity());
  int32_t i = 0;
  for (; i + kLanes <= vocab_size; i += kLanes) {
    for (int32_t lane = 0; lane < kLanes; ++lane) {
      const float value = logits[i + lane];
      largest[lane] = value > largest[lane] ? value : largest[lane];
    }
  }
  float best = *std::max_element(largest.begin(), largest.end());
  for (; i < vocab_size; ++i) best = logits[i] > best ? logits[i] : best;
  if (best == -std::numeric_limits<float>::infinity()) return -1;
  return static_cast<TokenId>(std::find(logits, logits + vocab_size, best) - logits);
}

SampleParams Sampler::params(const ChoiceState& state, int32_t row, int32_t position) {
  const SamplingSpec& spec = state.spec();
  SampleParams params{.row = row, .num_top = spec.logprobs};
  if (is_greedy(spec)) return params;
  params.greedy = 0;
  params.inverse_temperature = 1.0F / spec.temperature;
  params.cut_nats = kNegligibleNats * spec.temperature;
  params.top_k = spec.top_k;
  params.top_p = spec.top_p;
  params.min_p = spec.min_p;
  params.uniform = uniform_at(spec.seed, state.choice(), position);
  return params;
}

TokenId Sampler::choose(const float* logits, const ChoiceState& state) {
  const float* row = logits;
  if (state.adjusts()) {
    adjusted_.assign(logits, logits + vocab_size_);
    state.adjust(adjusted_.data());
    row = adjusted_.data();
  }
  const TokenId likeliest = arg_max(row, vocab_size_);
  if (likeliest < 0 || !std::isfinite(row[likeliest])) {
    // Only the raw row can say that the model is broken; an adjusted one is the request's doing.
    const TokenId raw = row == logits ? likeliest : arg_max(logits, vocab_size_);
    return raw >= 0 && std::isfinite(logits[raw]) ? raw : -1;
  }
  if (is_greedy(state.spec())) return likeliest;
  return draw(row, likeliest, state);
}

TokenId Sampler::draw(const float* logits, TokenId likeliest, const ChoiceState& state) {
  const SamplingSpec& spec = state.spec();
  const float largest = logits[likeliest];
  const float cut = largest - kNegligibleNats * spec.temperature;
  candidates_.clear();
  for (TokenId token = 0; token < vocab_size_; ++token) {
    if (logits[token] > cut) candidates_.push_back({logits[token], token});
  }
  const float scale = 1.0F / spec.temperature;
  for (Candidate& candidate : candidates_) {
    candidate.weight = exp_of_negative((candidate.weight - largest) * scale);
  }
  if (spec.top_k > 0) keep_top_k(spec.top_k);
  if (spec.top_p < 1.0F) keep_top_p(spec.top_p);
  if (spec.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < spec.min_p; });
  }
  if (candidates_.empty()) return likeliest;
  if (spec.top_k > 0 || spec.top_p < 1.0F) {  // by id, whatever order the cuts have left
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  const uint64_t total = total_weight();
  const double uniform = uniform_at(spec.seed, state.choice(), state.next_position());
  const uint64_t point =
      std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += whole(candidate.weight);
    if (point < sum) return candidate.token;
  }
  return candidates_.back().token;
}

uint64_t Sampler::total_weight() const {
  return std::accumulate(
      candidates_.begin(), candidates_.end(), uint64_t{0},
      [](uint64_t sum, const Candidate& candidate) { return sum + whole(candidate.weight); });
}

void Sampler::keep_top_k(int32_t top_k) {
  if (static_cast<size_t>(top_k) >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + top_k, candidates_.end(), kLikelier);
  candidates_.resize(static_cast<size_t>(top_k));
}

// The fewest likeliest tokens whose share reaches top_p, at least one. Sorts only as many as it
// needs.
void Sampler::keep_top_p(double top_p) {
  const auto wanted = static_cast<uint64_t>(top_p * static_cast<double>(total_weight()));
  uint64_t sum = 0;
  size_t kept = 0;
  for (size_t sorted = std::min<size_t>(64, candidates_.size());;
       sorted = std::min(sorted * 8, candidates_.size())) {
    const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
    std::nth_element(begin, end, candidates_.end(), kLikelier);
    std::sort(begin, end, kLikelier);
    for (; kept < sorted; ++kept) {
      if (kept > 0 && sum >= wanted) break;
      sum += whole(candidates_[kept].weight);
    }
    if (kept < sorted || sorted == candidates_.size()) break;
  }
  candidates_.resize(kept);
}

LogSoftmax::LogSoftmax(const float* logits, int32_t vocab_size)
    : logits_(logits), vocab_size_(vocab_size) {
  const TokenId likeliest = arg_max(logits, vocab_size);
  const float largest = likeliest < 0 ? 0 : logits[likeliest];
  double total = 0;
  for (int32_t i = 0; i < vocab_size; ++i) total += std::exp(logits[i] - largest);
  log_total_ = largest + std::log(total);
}

float LogSoftmax::logprob(TokenId token) const {
  const auto value = static_cast<float>(logits_[token] - log_total_);
  return value > kLogprobFloor ? std::min(value, 0.0F) : kLogprobFloor;
}

std::vector<TokenLogprob> LogSoftmax::top(int32_t k) const {
  std::vector<TokenId> ids(static_cast<size_t>(vocab_size_));
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::clamp(k, 0, vocab_size_);
  std::partial_sort(ids.begin(), end, ids.end(), [this](TokenId a, TokenId b) {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  });
  std::vector<TokenLogprob> result;
  for (auto id = ids.begin(); id != end; ++id) result.push_back({*id, logprob(*id)});
  return result;
}

}  // namespace baton
