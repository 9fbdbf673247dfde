// Drawing a token from a row of logits: the arithmetic that CPU and GPU share to the bit. Weights
// are whole numbers, so that their sums do not depend on the order of the additions, and a GPU with
// a thousand threads draws what one CPU thread draws.
#pragma once

#include <cstdint>

namespace baton {

// A token this many nats below the likeliest has a probability under 1e-13 and is never drawn.
inline constexpr float kNegligibleNats = 30.0F;

// A weight of 1 (the likeliest token) as a whole number. exp(-30) is 2^-43.3, so nothing above the
// cut becomes 0, and 2^19 tokens do not overflow.
inline constexpr int32_t kWeightBits = 44;

// How one token is drawn. In the order: temperature, top_k, top_p, min_p.
struct SampleParams {
  int32_t row = 0;     // of the logits
  int32_t greedy = 1;  // the likeliest, whatever follows
  float inverse_temperature = 1;
  float cut_nats = 0;  // kNegligibleNats * temperature
  int32_t top_k = 0;   // 0 = off
  float top_p = 1;     // 1 = off
  float min_p = 0;     // 0 = off
  int32_t want_logprob = 0;
  double uniform = 0;  // in [0, 1), a function of (seed, choice, position)
};

// What comes back to the host. token -1: the row's largest value is not finite.
struct SampleResult {
  int32_t token = 0;
  float logprob = 0;  // of the raw row; NaN where the row holds NaN; only if want_logprob
};

}  // namespace baton
