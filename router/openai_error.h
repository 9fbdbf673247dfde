// Errors as OpenAI's clients read them, and the one table of HTTP status codes. Any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "router/http_types.h"

namespace baton {

int http_status(Code code);

// {"error": {message, type, param, code}}. `param` is the field that the message is about
// ("max_tokens: got ...").
std::string error_json(const Status& status);
// With Retry-After where a later try may succeed, WWW-Authenticate where a key is missing.
HttpResponse error_response(const Status& status, int64_t retry_after_s = 1);
// For routes and methods that do not exist.
HttpResponse error_response(int http_status, const std::string& message);

}  // namespace baton
