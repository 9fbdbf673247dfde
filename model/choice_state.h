// What a choice remembers between its tokens: a function of (spec, tokens), rebuilt by replaying
// the tokens. It changes logits before sampling and says when the choice ends. Owned by the engine,
// one a slot; engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/engine.h"

namespace baton {

class ChoiceState {
 public:
  ChoiceState(SlotOpen open, int32_t context_len);

  const SamplingSpec& spec() const { return spec_; }
  int32_t choice() const { return choice_; }
  int32_t next_position() const { return next_position_; }  // of the token to be sampled
  TokenId last_token() const { return last_token_; }
  bool ended() const { return ended_; }

  // True if adjust() would change anything for the next token.
  bool adjusts() const;
  // In the order: allowed ids, bad words, minimum length (EOS and stop ids), logit bias, penalties.
  // Excluded tokens become -infinity. logits: float32 [vocab_size], changed in place.
  void adjust(float* logits, int32_t vocab_size) const;

  struct Ending {
    FinishReason finish = FinishReason::kNone;
    std::optional<TokenId> stop_id;
  };
  // Takes the sampled token. EOS before stop ids before length, as clients expect the finish
  // reason.
  Ending accept(TokenId token);

 private:
  void remember(TokenId token, bool generated);
  int32_t num_generated() const { return static_cast<int32_t>(generated_.size()); }
  void exclude_bad_words(float* logits, int32_t vocab_size) const;
  void apply_penalties(float* logits, int32_t vocab_size) const;

  const SamplingSpec spec_;
  const int32_t choice_;
  const int32_t context_len_;
  const bool counts_tokens_;  // some penalty is on
  int32_t next_position_ = 0;
  TokenId last_token_ = -1;
  bool ended_ = false;
  std::vector<TokenId> generated_;
  // Every token seen: how often it was generated (0: in the prompt only). Kept only if
  // counts_tokens_.
  std::unordered_map<TokenId, int32_t> counts_;
};

}  // namespace baton
