// A StepInput as the engines compute it: the batch of its chunks, the rows whose logits somebody
// wants, and for whom. The same on every device. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "model/batch.h"
#include "model/choice_table.h"
#include "model/engine.h"

namespace baton {

// A token to be drawn from a row of logits.
struct SampleRow {
  int32_t slot = 0;
  std::shared_ptr<ChoiceState> choice;
};

// A row of the batch whose logits somebody wants.
struct LogitRow {
  int32_t row = 0;               // in the batch
  int32_t offset = 0;            // in its chunk
  const Chunk* chunk = nullptr;  // in the StepInput
  int32_t num_tokens = 0;        // of the chunk in this batch
  int32_t first_sample = 0;      // in samples
  int32_t num_samples = 0;

  int32_t next_position() const { return chunk->first_pos + offset + 1; }
  // The token after this row's, as far as the prompt's log-probabilities need it; -1: none.
  TokenId next_prompt_token() const;
  bool scored() const { return chunk->prompt_logprobs >= 0 && next_prompt_token() >= 0; }
};

// Slots whose last token is still being computed, with the number that its sample has in that step.
using TokensInFlight = std::unordered_map<int32_t, int32_t>;
// Such a token in Batch::tokens, and back.
constexpr TokenId token_in_flight(int32_t sample) {
  return -1 - sample;
}

class StepBatch {
 public:
  StepBatch(const KvLayout& layout, int32_t vocab_size, int32_t context_len)
      : layout_(layout), vocab_size_(vocab_size), context_len_(context_len) {}

  // `input` must outlive what is built. Chunks of choices that have ended are left out.
  void build(const StepInput& input, const ChoiceTable& choices, const TokensInFlight& in_flight);

  const Batch& batch() const { return batch_; }
  int32_t num_tokens() const { return batch_.num_tokens(); }
  const std::vector<LogitRow>& logit_rows() const { return logit_rows_; }
  const std::vector<SampleRow>& samples() const { return samples_; }
  // Every chunk is one token whose logits are wanted for samples alone: a graph can compute it.
  bool decode_only() const { return decode_only_; }
  // Some row's logits are wanted themselves, or scored.
  bool reads_logits() const { return reads_logits_; }

 private:
  void add_logit_rows(const Chunk& chunk, int32_t first_row, int32_t num_tokens,
                      const ChoiceTable& choices);

  const KvLayout& layout_;
  const int32_t vocab_size_;
  const int32_t context_len_;
  Batch batch_;
  std::vector<LogitRow> logit_rows_;
  std::vector<SampleRow> samples_;
  bool decode_only_ = false;
  bool reads_logits_ = false;
};

}  // namespace baton
