// HTTP as the rest of the router sees it: plain requests in, a way to answer out. No sockets here,
// so that tests need none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // without the query
  std::string body;
  std::string content_type;      // empty if none
  std::string credential;        // of "Authorization: Bearer" or X-Api-Key; empty if none
  std::string request_id;        // x-request-id, made safe, or a random one
  bool request_id_sent = false;  // it is the client's
  std::string traceparent;       // of W3C trace context, as sent; empty if none or malformed
  std::string if_none_match;     // empty if none
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // besides those of content, connection, CORS and request id
};

// The answer to one request: either send(), or start_events(), any number of write() and end().
// Router loop thread only. After the client has gone, calls do nothing.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  virtual void send(HttpResponse response) = 0;
  // A stream of server-sent events. What several write() calls hand over before the loop's next
  // turn, or while the client is slow, goes out in one piece.
  virtual void start_events() = 0;
  virtual void write(std::string_view events) = 0;
  virtual void end() = 0;
  // Called once if the client goes away, or stops reading, before the answer is complete: later,
  // from the loop, or from inside of this call if it has gone already.
  virtual void on_gone(std::function<void()> gone) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Asked before a body is read: the answer to a request that needs none of it, such as one without
  // a key. `head` has no body. The connection is closed after such an answer.
  virtual std::optional<HttpResponse> refuse_head(const HttpRequest& head) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  // The server has answered this status by itself: not HTTP, too large, too many connections.
  virtual void refused(int status) = 0;
};

}  // namespace baton
