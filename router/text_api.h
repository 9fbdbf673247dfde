// The endpoints between text and tokens: what a prompt becomes before the model sees it, and back.
// Text threads; no state.
#pragma once

#include "config/config.h"
#include "router/http_types.h"
#include "router/json_text.h"
#include "router/openai_request.h"

namespace baton {

// {"prompt" | "content" | "messages", ...} -> {"count", "max_model_len", "tokens", "token_strs"}
HttpResponse tokenize(const Json& body, const TextModel& model, const ModelFacts& facts,
                      const HttpConfig& limits);
// {"tokens"} -> {"prompt", "content"}, the same text under the names that two other servers use.
HttpResponse detokenize(const Json& body, const TextModel& model);
// What Hugging Face's tokenizer_config.json says: special tokens and the chat template.
HttpResponse tokenizer_info(const TextModel& model, const ModelFacts& facts);
// A request for tokens, as it would be computed: an object for a chat, a list with one for each
// prompt for a completion. Checks all of the request's fields.
HttpResponse render(ApiKind kind, const Json& body, const TextModel& model, const ModelFacts& facts,
                    const HttpConfig& limits);

}  // namespace baton
