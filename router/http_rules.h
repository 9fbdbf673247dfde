// HTTP rules that need no sockets: heads of answers, what a header may carry. Used by the sessions;
// any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "router/http_types.h"

namespace baton {

// The head of a whole answer, up to its blank line. `request_id` is echoed when not empty.
std::string answer_head(const HttpResponse& response, std::string_view request_id, bool keep_alive);
// The head of an event stream; chunked unless the client is of HTTP/1.0, which reads until the end.
std::string events_head(std::string_view request_id, bool keep_alive, bool chunked);
// A piece of a chunked body. An empty one would end it: use last_chunk().
std::string body_chunk(std::string_view data);
std::string_view last_chunk();

// The answer to OPTIONS, which browsers ask before they call from another origin.
HttpResponse preflight_response();

// What is wrong with how a request says its body's length; empty: nothing. `encodings`: the values
// of its Transfer-Encoding headers. The parser takes what it does not know for "no body", and the
// body for the next request.
std::string framing_error(const std::vector<std::string_view>& encodings, bool has_length);

// A client's x-request-id as we may repeat it: letters, digits and -_.:, at most 128; else empty.
std::string safe_request_id(std::string_view value);
std::string random_request_id();  // 24 hexadecimal digits
// A traceparent (W3C trace context: version-trace-parent-flags in hex) as we may log it; else
// empty.
std::string safe_traceparent(std::string_view value);
// The key of "Bearer <key>"; empty if it is something else.
std::string bearer_key(std::string_view authorization);
// "/v1/models?x=1" -> "/v1/models"
std::string path_of(std::string_view target);
// "a%2Fb" -> "a/b"; what is no escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace baton
