// From a row of logits to a token. Everything is a function of the row, the spec and the choice's
// tokens: ties go to the lowest id, the random number comes from (seed, choice, position). Order:
// ChoiceState::adjust, temperature, top_k, top_p, min_p. Engine thread only.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "model/choice_state.h"

namespace baton {

// Index of the largest value, the lowest one on ties; NaN never wins. -1 if there is nothing above
// -infinity.
TokenId arg_max(const float* logits, int32_t vocab_size);

class Sampler {
 public:
  explicit Sampler(int32_t vocab_size) : vocab_size_(vocab_size) {}

  // The next token of `state`; the state is not changed. If bans, masks and penalties leave no
  // finite number, the likeliest of the raw row. -1 if the largest of that is not finite: the model
  // is broken.
  TokenId choose(const float* logits, const ChoiceState& state);

  // How a GPU draws the same token from `row`, but for what the state adjusts; the token is the one
  // at `position`.
  static SampleParams params(const ChoiceState& state, int32_t row, int32_t position);

 private:
  struct Candidate {
    float weight = 0;  // exp((logit - largest) / temperature)
    TokenId token = 0;
  };
  TokenId draw(const float* logits, TokenId likeliest, const ChoiceState& state);
  void keep_top_k(int32_t top_k);
  void keep_top_p(double top_p);
  uint64_t total_weight() const;  // of the candidates, in units of 2^-kWeightBits

  const int32_t vocab_size_;
  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
};

// Natural log-probabilities of a raw row; a result under -9999 is given as -9999.0, because JSON
// has no infinity.
class LogSoftmax {
 public:
  LogSoftmax(const float* logits, int32_t vocab_size);
  bool valid() const { return std::isfinite(log_total_); }  // false: NaN or infinity in the row
  float logprob(TokenId token) const;
  // REQUIRES: valid(). The k likeliest, likeliest first, ties by lowest id.
  std::vector<TokenLogprob> top(int32_t k) const;

 private:
  const float* const logits_;  // borrowed
  const int32_t vocab_size_;
  double log_total_ = 0;
};

}  // namespace baton
