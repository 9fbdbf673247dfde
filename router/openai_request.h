// Bodies of /v1/chat/completions and /v1/completions -> one plain ApiRequest, complete: tokenised
// prompts, sampling with the model's defaults, stop strings, what the answer shall contain. Text
// threads; no state.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/messages.h"
#include "base/status.h"
#include "config/config.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"
#include "router/json_text.h"

namespace baton {

// The text side of a model. Constant after construction; outlives all requests.
struct TextModel {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;        // null: the model has none
  std::string chat_template_source;                   // of it, for who asks; may be empty
  std::map<std::string, std::string> special_tokens;  // "bos_token" -> "<s>", for the template
  std::vector<TokenId> eos_ids;                       // ends a choice
  SamplingSpec defaults;                              // of the model's generation config
};

// What is known of the model as it is served.
struct ModelFacts {
  std::string name;  // as clients call it
  int64_t created_s = 0;
  int32_t context_len = 0;  // the smallest of any worker; 0: no worker has been seen so far
  int32_t vocab_size = 0;
};

enum class ApiKind : uint8_t { kChat, kCompletion };

struct ApiRequest {
  ApiKind kind = ApiKind::kChat;
  std::string model;       // as the client wrote it; empty: it did not
  std::string request_id;  // of the body; empty: none
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> echoed;  // per prompt, its text; only with echo
  SamplingSpec spec;  // max_tokens as asked; max_tokens_set false: up to the context's end
  bool max_tokens_set = false;
  bool seed_set = false;
  bool no_output = false;  // max_tokens 0: the answer is the prompt alone
  std::vector<std::string> stop;
  bool include_stop = false;  // the stop string or token stays in the text
  bool skip_special_tokens = true;
  bool echo = false;
  bool logprobs = false;
  bool prompt_logprobs_asked = false;  // by that name; echo with logprobs needs them too
  bool return_token_ids = false;
  bool return_workers = false;  // the answer names the workers that made it
  bool tokens_as_ids = false;   // logprobs name tokens "token_id:17"
  // Longer prompts lose tokens at their start, or at their end; 0: none does, -1: as many as fit
  // into the context beside the output.
  int32_t truncate_tokens = 0;
  bool truncate_end = false;
  bool stream = false;
  bool include_usage = false;
  bool usage_in_every_chunk = false;

  // max_tokens of the prompt with this index.
  int32_t max_tokens(size_t prompt_index, int32_t context_len) const;
};

// Errors: INVALID_ARGUMENT, the message names the field, what was got and what is wanted; NOT_FOUND
// for another model's name.
Result<ApiRequest> read_chat_request(const Json& body, const TextModel& model,
                                     const ModelFacts& facts, const HttpConfig& limits);
Result<ApiRequest> read_completion_request(const Json& body, const TextModel& model,
                                           const ModelFacts& facts, const HttpConfig& limits);

}  // namespace baton
