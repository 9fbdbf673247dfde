// What is made of a row of logits: the row itself, the prompt's log-probabilities, a token for each
// choice that samples from it. Rows and samples in their order. Engine thread only.
#pragma once

#include "model/sampler.h"
#include "model/step_batch.h"

namespace baton {

class RowReader {
 public:
  explicit RowReader(int32_t vocab_size) : vocab_size_(vocab_size), sampler_(vocab_size) {}

  // Everything that `row` is wanted for; logits: float32 [vocab]. Sets output->error when they are
  // not finite.
  void read(const LogitRow& row, const std::vector<SampleRow>& samples, const float* logits,
            StepOutput* output);

  // For a token that a GPU has drawn, with the likeliest of the row as far as the spec wants them:
  // `top` holds as many. Sets output->error as read() does.
  void accept(const LogitRow& row, const SampleRow& sample, const SampleResult& drawn,
              const SampleResult* top, StepOutput* output) const;

 private:
  // One sample drawn here.
  void sample(const LogitRow& row, const SampleRow& sample, const float* logits,
              StepOutput* output);
  void score_prompt(const LogitRow& row, const float* logits, StepOutput* output) const;

  const int32_t vocab_size_;
  Sampler sampler_;
};

}  // namespace baton
