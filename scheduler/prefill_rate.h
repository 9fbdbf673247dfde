// How long the tokens of prompts take on this worker, learnt from the steps that have completed,
// so that a prefill chunk can be bounded in time. Inside scheduler/ only; same thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton {

class PrefillRate {
 public:
  // A step took `us` with `tokens` of prompts in it, at position `context` on average. Whatever
  // else was in the step counts as part of their price: it makes the next chunk wait as long.
  void measured(int64_t tokens, int64_t context, int64_t us);

  // The price of a prompt's token at `position`; 0: nothing has been measured yet.
  double us_per_token(int32_t position) const;

 private:
  // An average that fades with the tokens measured since.
  struct Average {
    double tokens = 0;
    double us = 0;
  };
  static size_t place_of(int64_t context);

  // Attention makes a token dearer with all that is before it: one average for each doubling of
  // the context, from 1024 positions on.
  std::array<Average, 16> by_context_;
};

}  // namespace baton
