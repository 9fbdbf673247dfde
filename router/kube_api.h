// GET requests to a Kubernetes API server, over TLS: one connection each. Called by kube_watch.cc,
// on its thread, which waits here; stop() ends a wait from any other. Holds no state of a request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/byte_stream.h"
#include "base/socket.h"
#include "base/status.h"
#include "config/config.h"

namespace baton {

// Text of https://host:port, as in kube.api_server; empty: from KUBERNETES_SERVICE_HOST and _PORT,
// which is how Kubernetes tells its containers. Throws ConfigError.
std::string kube_api_server(const KubeConfig& config);

class KubeApi {
 public:
  struct Answer {
    int32_t status = 0;
    int64_t retry_after_s = 0;
    std::string reason;  // of a status other than 200: the beginning of the body
  };
  // Called with nothing when a 200 begins. False: enough, the connection may go.
  using OnBody = std::function<bool(std::string_view bytes)>;

  // Throws ConfigError when `config` names no API server.
  explicit KubeApi(const KubeConfig& config);

  // `target`: path and query. `on_body` gets the body of a 200 as it comes. The Status of a
  // connection that could not be made, was cut off, or was silent for `idle_ms`.
  Result<Answer> get(const std::string& target, int64_t idle_ms, const OnBody& on_body) const;
  // Thread-safe: get() ends, now and for ever.
  void stop() const;
  // False: stop() has been called. Otherwise true after so long.
  bool rest(int64_t wait_ms) const;

 private:
  Result<std::unique_ptr<ByteStream>> connect() const;
  Result<std::string> request_text(const std::string& target) const;
  Status send(ByteStream& stream, std::string_view request, int64_t deadline_us) const;
  Status wait(const ByteStream& stream, bool writing, int64_t deadline_us) const;

  const KubeConfig config_;
  HostPort server_;
  bool tls_ = true;
  ScopedFd stop_;
};

}  // namespace baton
