// Chat messages -> the prompt's tokens, by the model's own template. Text threads.
#pragma once

#include <vector>

#include "router/json_fields.h"
#include "router/openai_request.h"

namespace baton {

// Renders `messages` and the template's switches out of a chat or /tokenize body, and encodes the
// result. `limits` says whether the body may bring a template of its own. Errors: INVALID_ARGUMENT
// as the template or a field says.
Result<std::vector<TokenId>> encode_messages(const Json& body, const TextModel& model,
                                             const HttpConfig& limits);

}  // namespace baton
