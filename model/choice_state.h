// What a choice remembers between its tokens: a function of (spec, tokens), rebuilt by replaying
// the tokens. It changes logits before sampling and says when the choice ends. Owned by the engine,
// one a slot; engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "model/engine.h"

namespace baton {

class ChoiceState {
 public:
  ChoiceState(SlotOpen open, int32_t context_len, int32_t vocab_size);

  const SamplingSpec& spec() const { return spec_; }
  int32_t choice() const { return choice_; }
  int32_t next_position() const { return next_position_; }  // of the token to be sampled
  TokenId last_token() const { return last_token_; }
  bool ended() const { return ended_; }

  // True if adjust() would change anything for the next token, or for the one after it.
  bool adjusts(int32_t in_flight = 0) const;
  // In the order: allowed ids, bad words and minimum length (EOS and stop ids), logit bias,
  // penalties. Excluded tokens become -infinity. logits: float32 [vocab_size], changed in place.
  void adjust(float* logits) const;

  // What adjust() does, for whoever does it elsewhere (kernels/sampling/sampling.h). Ids outside of
  // the vocabulary are left out.
  const std::vector<uint32_t>& allowed() const { return allowed_; }  // a mask; empty: all
  const std::vector<TokenBias>& biases() const { return biases_; }   // no token twice
  // Appends what may not come next: bad words, minimum length. With `in_flight` = 1 after a
  // generated token that is not known yet.
  void add_bans(int32_t in_flight, std::vector<TokenBan>* bans) const;
  bool has_penalties() const { return has_penalties_; }
  // Every token seen: how often it was generated (0: in the prompt only). Empty without penalties.
  const std::unordered_map<TokenId, int32_t>& counts() const { return counts_; }

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
  void add_ban(TokenId token, TokenId after, std::vector<TokenBan>* bans) const;
  void apply_penalties(float* logits) const;

  const SamplingSpec spec_;
  const int32_t choice_;
  const int32_t context_len_;
  const int32_t vocab_size_;
  const bool has_penalties_;
  const std::vector<uint32_t> allowed_;
  const std::vector<TokenBias> biases_;
  int32_t next_position_ = 0;
  TokenId last_token_ = -1;
  bool ended_ = false;
  std::vector<TokenId> generated_;
  std::unordered_map<TokenId, int32_t> counts_;
};

}  // namespace baton
