#include "model/row_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

constexpr const char* kNotFinite = "logits are not finite: the model or its file is broken";

Sampled make_sampled(const LogitRow& row, const SampleRow& sample, TokenId token) {
  const int32_t position = row.next_position();
  CHECK_EQ(sample.choice->next_position(), position)
      << "seq " << row.chunk->seq << ", slot " << sample.slot;
  return {.seq = row.chunk->seq,
          .slot = sample.slot,
          .choice = sample.choice->choice(),
          .position = position,
          .token = token};
}

void finish(Sampled sampled, ChoiceState& choice, StepOutput* output) {
  const ChoiceState::Ending ending = choice.accept(sampled.token);
  sampled.finish = ending.finish;
  sampled.stop_id = ending.stop_id;
  output->sampled.push_back(std::move(sampled));
}

}  // namespace

void RowReader::read(const LogitRow& row, const std::vector<SampleRow>& samples,
                     const float* logits, StepOutput* output) {
  if (row.chunk->all_logits) {
    output->logits.insert(output->logits.end(), logits, logits + vocab_size_);
  }
  if (row.scored()) score_prompt(row, logits, output);
  for (int32_t i = 0; i < row.num_samples && output->error.empty(); ++i) {
    sample(row, samples[static_cast<size_t>(row.first_sample + i)], logits, output);
  }
}

void RowReader::score_prompt(const LogitRow& row, const float* logits, StepOutput* output) const {
  const Chunk& chunk = *row.chunk;
  std::vector<ChunkLogprobs>& all = output->prompt_logprobs;
  if (row.offset == 0) {
    all.push_back({.seq = chunk.seq, .first_position = chunk.first_pos + 1});
  }
  const LogSoftmax softmax(logits, vocab_size_);
  if (!softmax.valid()) {
    output->error = kNotFinite;
    return;
  }
  const TokenId token = row.next_prompt_token();
  all.back().tokens.push_back({.token = token, .logprob = softmax.logprob(token)});
  all.back().top.push_back(softmax.top(chunk.prompt_logprobs));
}

void RowReader::sample(const LogitRow& row, const SampleRow& sample, const float* logits,
                       StepOutput* output) {
  ChoiceState& choice = *sample.choice;
  if (choice.ended()) return;
  Sampled sampled = make_sampled(row, sample, sampler_.choose(logits, choice));
  const int32_t num_top = choice.spec().logprobs;
  if (sampled.token >= 0 && num_top >= 0) {
    const LogSoftmax softmax(logits, vocab_size_);
    if (!softmax.valid()) sampled.token = -1;
    sampled.logprob = softmax.logprob(std::max(sampled.token, 0));
    if (num_top > 0 && softmax.valid()) sampled.top = softmax.top(num_top);
  }
  if (sampled.token < 0) {
    output->error = kNotFinite;
    return;
  }
  finish(std::move(sampled), choice, output);
}

void RowReader::accept(const LogitRow& row, const SampleRow& sample, const SampleResult& drawn,
                       const SampleResult* top, StepOutput* output) const {
  if (sample.choice->ended()) return;
  Sampled sampled = make_sampled(row, sample, drawn.token);
  const int32_t num_top = std::min(sample.choice->spec().logprobs, vocab_size_);
  if (drawn.token < 0 || (num_top >= 0 && std::isnan(drawn.logprob))) {
    output->error = kNotFinite;
    return;
  }
  if (num_top >= 0) sampled.logprob = drawn.logprob;
  for (int32_t i = 0; i < num_top; ++i) sampled.top.push_back({top[i].token, top[i].logprob});
  finish(std::move(sampled), *sample.choice, output);
}

}  // namespace baton
