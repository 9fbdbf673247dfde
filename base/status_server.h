// A very small HTTP/1.1 server for /metrics, /livez and /readyz of a process that has no other
// HTTP. It answers GET, one request a connection, and bounds everything: connections, header bytes,
// time. No TLS, no authentication: it tells no request's content.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace baton {

struct StatusReply {
  int32_t code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Owns one thread, which sleeps between requests.
class StatusServer {
 public:
  // `path` is without its query. Called on the server's thread; must be quick and thread-safe.
  using Handler = std::function<StatusReply(const std::string& path)>;

  // `listen`: "host:port", port 0: any. Throws ConfigError when it cannot listen.
  StatusServer(const std::string& listen, Handler handler);
  ~StatusServer();  // closes everything, joins the thread; no handler call after it

  int32_t port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
