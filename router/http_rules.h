// HTTP rules that need no sockets: heads of answers, what a header may carry. Used by the sessions;
// any thread.
#pragma once

#include <string>
#include <string_view>

#include "router/http_types.h"

namespace baton {

// The head of a whole answer, up to its blank line. `request_id` is echoed when not empty.
std::string answer_head(const HttpResponse& response, std::string_view request_id, bool keep_alive);
// The head of an event stream; chunked unless the client is of HTTP/1.0, which reads until the end.
std::string events_head(std::string_view request_id, bool keep_alive, bool chunked);
// A piece of a chunked body. An empty one would end it: use last_chunk().
std::string body_chunk(std::string_view data);
std::string_view last_chunk();

// A client's x-request-id as we may repeat it: letters, digits and -_.:, at most 128; else empty.
std::string safe_request_id(std::string_view value);
// The key of "Bearer <key>"; empty if it is something else.
std::string bearer_key(std::string_view authorization);
// "/v1/models?x=1" -> "/v1/models"
std::string path_of(std::string_view target);

}  // namespace baton
