// What the text side of the router asks of the token side, and what it gets back: one prompt, n
// choices of tokens. Plain values and one interface; router loop thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/messages.h"
#include "base/status.h"
#include "router/ttft_split.h"

namespace baton {

using GenerationId = uint64_t;  // of this process, in order of submission

struct GenerationRequest {
  SamplingSpec spec;  // complete: seed set, choices numbered from 0
  std::vector<TokenId> prompt;
  int32_t prompt_index = 0;  // the caller's: which prompt of its batch this is
  bool prompt_only = false;  // scoring: nothing after the first token is wanted
};

// Is told everything that becomes certain about one or more generations. Outlives them (they share
// it).
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;

  // Tokens of a choice come in order, without hole or repeat; `finish` marks its last. False: the
  // caller wants no more of this choice (a stop string), which then counts as finished.
  virtual bool on_token(int32_t prompt_index, const TokenEvent& event) = 0;
  // Who computes the prompt and who decodes (empty: nobody so far): told before the first token
  // that comes from there, again after a replay.
  virtual void on_workers(int32_t /*prompt_index*/, const std::string& /*prefill*/,
                          const std::string& /*decode*/) {}
  // Told right before the first on_token: how that token came.
  virtual void on_first_token(const FirstTokenTimes& /*times*/) {}
  virtual void on_prompt_logprobs(int32_t prompt_index, const PromptLogprobs& logprobs) = 0;
  virtual void on_cached_tokens(int32_t prompt_index, int32_t cached_tokens) = 0;
  // The generation has ended without all of its tokens. Nothing follows.
  virtual void on_failed(int32_t prompt_index, const Status& status) = 0;
};

}  // namespace baton
