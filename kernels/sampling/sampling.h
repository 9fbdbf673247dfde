// Drawing a token from a row of logits: what CPU and GPU share. The arithmetic is equal to the bit:
// weights are whole numbers, so that their sums do not depend on the order of the additions, and a
// GPU with a thousand threads draws what one CPU thread draws.
#pragma once

#include <cstdint>

namespace baton {

// A token this many nats below the likeliest has a probability under 1e-13 and is never drawn.
inline constexpr float kNegligibleNats = 30.0F;

// A weight of 1 (the likeliest token) as a whole number. exp(-30) is 2^-43.3, so nothing above the
// cut becomes 0, and 2^19 tokens do not overflow.
inline constexpr int32_t kWeightBits = 44;

// A log-probability is never below it, because JSON has no infinity.
inline constexpr float kLogprobFloor = -9999.0F;

// Longer rows are not sampled on a GPU.
inline constexpr int32_t kSampleVocabMax = 1 << 19;

// Likeliest tokens that a GPU lists beside the one it draws.
inline constexpr int32_t kTopTokensMax = 20;

struct TokenBias {
  int32_t token = 0;
  float bias = 0;
};
// Excluded if `after` is -1, or the token before the one to be drawn.
struct TokenBan {
  int32_t token = 0;
  int32_t after = -1;
};
struct TokenCount {
  int32_t token = 0;
  int32_t count = 0;
};

// Words of a mask of the vocabulary: token t is bit t % 32 of word t / 32.
constexpr int32_t mask_words(int32_t vocab_size) {
  return (vocab_size + 31) / 32;
}

// How a row is changed for one sample before its token is drawn, in this order: mask, bans, biases,
// penalties (ChoiceState::adjust). Excluded tokens become -infinity. Pointers into the GPU's
// memory; lists hold ids of the vocabulary alone.
struct RowEdits {
  float* edited = nullptr;            // float32 [vocab_size] the changed row; 16-byte aligned
  const uint32_t* allowed = nullptr;  // [mask_words(vocab_size)], null: all
  const TokenBan* bans = nullptr;
  const TokenBias* biases = nullptr;  // no token twice
  int32_t num_bans = 0;
  int32_t num_biases = 0;
  // int32 [vocab_size], null: no penalties. 0: a token not seen; else 1 + how often it was
  // generated.
  int32_t* counts = nullptr;
  const int32_t* last_token = nullptr;  // the token before the one to be drawn
  int32_t counts_last = 0;  // that one was generated and is not in `counts`: it is added
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
};

// How one token is drawn. In the order: edits, temperature, top_k, top_p, min_p.
struct SampleParams {
  int32_t row = 0;     // of the logits
  int32_t greedy = 1;  // the likeliest, whatever follows
  float inverse_temperature = 1;
  float cut_nats = 0;  // kNegligibleNats * temperature
  int32_t top_k = 0;   // 0 = off
  float top_p = 1;     // 1 = off
  float min_p = 0;     // 0 = off
  // -1: no log-probabilities; k: those of the drawn token and of the k likeliest, at most
  // kTopTokensMax, of the row as it was before edits
  int32_t num_top = -1;
  double uniform = 0;  // in [0, 1), a function of (seed, choice, position)
  const RowEdits* edits = nullptr;
};

// What comes back to the host.
struct SampleResult {
  int32_t token = 0;  // -1: the row's largest value is not finite
  float logprob = 0;  // of the raw row; NaN where that holds NaN or infinity; only if num_top >= 0
};

}  // namespace baton
