#include "model/step_batch.h"

#include "base/check.h"

namespace baton {

TokenId LogitRow::next_prompt_token() const {
  const auto next = static_cast<size_t>(offset) + 1;
  return next < chunk->tokens.size() ? chunk->tokens[next] : chunk->next_token;
}

void StepBatch::build(const StepInput& input, const ChoiceTable& choices,
                      const TokensInFlight& in_flight) {
  batch_.clear(layout_.groups.size());
  logit_rows_.clear();
  samples_.clear();
  decode_only_ = true;
  reads_logits_ = false;
  for (const Chunk& chunk : input.chunks) {
    const int32_t first_row = batch_.num_tokens();
    auto num_tokens = static_cast<int32_t>(chunk.tokens.size());
    const TokenId* ids = chunk.tokens.data();
    TokenId last = -1;
    if (chunk.use_last) {
      CHECK_EQ(chunk.sample_slots.size(), 1U) << "use_last of seq " << chunk.seq;
      const ChoiceState& state = *choices.at(chunk.sample_slots[0]);
      if (state.ended()) continue;
      const auto sample = in_flight.find(chunk.sample_slots[0]);
      last = sample == in_flight.end() ? state.last_token() : token_in_flight(sample->second);
      ids = &last;
      num_tokens = 1;
    }
    CHECK_GT(num_tokens, 0) << "empty chunk of seq " << chunk.seq;
    CHECK_LE(chunk.first_pos + num_tokens, context_len_) << "seq " << chunk.seq;
    for (int32_t i = 0; i < num_tokens; ++i) {
      CHECK((ids[i] >= 0 && ids[i] < vocab_size_) || chunk.use_last)
          << "seq " << chunk.seq << ": token " << ids[i] << " is not in the vocabulary";
    }
    batch_.add(chunk, ids, num_tokens, layout_);
    add_logit_rows(chunk, first_row, num_tokens, choices);
    decode_only_ = decode_only_ && num_tokens == 1 && chunk.sample_slots.size() == 1;
  }
  decode_only_ = decode_only_ && !reads_logits_ && batch_.num_tokens() > 0;
}

void StepBatch::add_logit_rows(const Chunk& chunk, int32_t first_row, int32_t num_tokens,
                               const ChoiceTable& choices) {
  for (int32_t i = 0; i < num_tokens; ++i) {
    LogitRow row{.row = first_row + i,
                 .offset = i,
                 .chunk = &chunk,
                 .num_tokens = num_tokens,
                 .first_sample = static_cast<int32_t>(samples_.size())};
    const bool read = chunk.all_logits || row.scored();
    reads_logits_ = reads_logits_ || read;
    if (i == num_tokens - 1) {
      for (const int32_t slot : chunk.sample_slots) samples_.push_back({slot, choices.at(slot)});
      row.num_samples = static_cast<int32_t>(chunk.sample_slots.size());
    }
    if (read || row.num_samples > 0) logit_rows_.push_back(row);
  }
}

}  // namespace baton
