// Log probabilities as OpenAI's two endpoints show them. One collector a choice; router loop thread
// only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/messages.h"
#include "model/text/tokenizer.h"
#include "router/json_text.h"
#include "router/openai_request.h"

namespace baton {

class ChoiceLogprobs {
 public:
  ChoiceLogprobs(const Tokenizer& tokenizer, ApiKind kind, bool tokens_as_ids)
      : tokenizer_(tokenizer), kind_(kind), tokens_as_ids_(tokens_as_ids) {}

  void add(const TokenEvent& event) { add({event.token, event.logprob}, &event.top); }
  // A token of an echoed prompt; the first has nothing before it: `top` is null, its logprob is
  // shown as null.
  void add(const TokenLogprob& token, const std::vector<TokenLogprob>* top);

  // What was added since the last call: chat {"content": [...]}, completions {"tokens": [...],
  // ...}.
  Json take();

 private:
  std::string name(TokenId id) const;

  const Tokenizer& tokenizer_;
  const ApiKind kind_;
  const bool tokens_as_ids_;
  Json entries_ = Json::array();  // chat
  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(),
       offsets_ = Json::array();  // completions
  int64_t text_offset_ = 0;       // in characters of the names so far
};

// The prompt_logprobs of vLLM's API: null for the first token, then {"17": {"logprob", "rank"?,
// "decoded_token"}} each.
Json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenLogprob>& tokens,
                          const std::vector<std::vector<TokenLogprob>>& top);

}  // namespace baton
