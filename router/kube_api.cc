#include "router/kube_api.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/tls.h"
#include "router/kube_http.h"

namespace baton {
namespace {

constexpr std::string_view kHttps = "https://";
constexpr std::string_view kHttp = "http://";
constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kTokenBytesMax = 64 << 10;
constexpr size_t kReasonBytesMax = 500;

int64_t now_us() {
  return SystemClock().now_us();
}

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// What comes from elsewhere and ends in a log.
std::string shortened(std::string text) {
  if (text.size() > kReasonBytesMax) text.resize(kReasonBytesMax);
  return text;
}

}  // namespace

std::string kube_api_server(const KubeConfig& config) {
  if (!config.api_server.empty()) return config.api_server;
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr)
    throw ConfigError(
        "kube.api_server: got none, and this is no container of Kubernetes, want "
        "https://host:port for the kube: entries of workers");
  return std::string(kHttps) + bracketed(host) + ":" + port;
}

KubeApi::KubeApi(const KubeConfig& config)
    : config_(config), stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  std::string url = kube_api_server(config);
  while (url.ends_with('/')) url.pop_back();
  tls_ = url.starts_with(kHttps);
  const bool plain = url.starts_with(kHttp);
  const auto server =
      parse_host_port(url.substr(std::min(url.size(), (tls_ ? kHttps : kHttp).size())));
  if ((!tls_ && !plain) || !server.ok())
    throw ConfigError("kube.api_server: got \"" + url + "\", want https://host:port");
  server_ = *server;
}

void KubeApi::stop() const {
  ::eventfd_write(stop_.get(), 1);
}

bool KubeApi::rest(int64_t wait_ms) const {
  pollfd wait{stop_.get(), POLLIN, 0};
  return ::poll(&wait, 1, static_cast<int>(wait_ms)) == 0;
}

Result<std::unique_ptr<ByteStream>> KubeApi::connect() const {
  const auto found = resolve(server_, /*numeric_only=*/false);
  if (!found.ok()) return found.status();
  const SocketAddress& address = found->front();
  // The token is for the API server's eyes only.
  if (!tls_ && !is_loopback(address))
    return invalid_argument("kube.api_server: got http:// beyond loopback, want https://");
  Result<ScopedFd> socket = connect_tcp(address);
  if (!socket.ok()) return socket.status();
  if (!tls_) return std::unique_ptr<ByteStream>(new TcpStream(std::move(*socket)));
  try {
    const TlsContext context(TlsServer{server_.host, config_.ca_file});
    return context.open(std::move(*socket), StreamSide::kDialer);
  } catch (const ConfigError& error) {  // the file is being replaced, or is not there yet
    return unavailable(error.what());
  }
}

Result<std::string> KubeApi::request_text(const std::string& target) const {
  std::string text = "GET " + target + " HTTP/1.1\r\nHost: " + bracketed(server_.host) + ":" +
                     std::to_string(server_.port) +
                     "\r\nAccept: application/json\r\nUser-Agent: baton-router\r\n"
                     "Connection: close\r\n";
  if (!config_.token_file.empty()) {
    std::ifstream in(config_.token_file);
    std::string token;
    if (!in || !(in >> token) || token.size() > kTokenBytesMax)
      return unavailable("kube.token_file: no token in " + config_.token_file);
    text += "Authorization: Bearer " + token + "\r\n";
  }
  return text + "\r\n";
}

// Until the stream can be read, or written, or whatever TLS wants first.
Status KubeApi::wait(const ByteStream& stream, bool writing, int64_t deadline_us) const {
  if (stream.buffered()) return {};
  const auto events = static_cast<int16_t>(POLLIN | (stream.wants_write(writing) ? POLLOUT : 0));
  pollfd waits[] = {{stop_.get(), POLLIN, 0}, {stream.fd(), events, 0}};
  const int64_t left_ms = (deadline_us - now_us()) / 1000;
  if (left_ms <= 0) return Status(Code::kDeadlineExceeded, "no answer in time");
  ::poll(waits, 2, static_cast<int>(std::min<int64_t>(left_ms + 1, 60'000)));
  if (waits[0].revents != 0) return Status(Code::kCancelled, "stopped");
  return {};
}

Status KubeApi::send(ByteStream& stream, std::string_view request, int64_t deadline_us) const {
  while (!request.empty()) {
    if (Status status = wait(stream, true, deadline_us); !status.ok()) return status;
    const Result<size_t> written = stream.write(request);
    if (!written.ok()) return written.status();
    request.remove_prefix(*written);
  }
  return {};
}

Result<KubeApi::Answer> KubeApi::get(const std::string& target, int64_t idle_ms,
                                     const OnBody& on_body) const {
  int64_t deadline_us = now_us() + config_.request_timeout_ms * 1000;
  const Result<std::string> request = request_text(target);
  if (!request.ok()) return request.status();
  const Result<std::unique_ptr<ByteStream>> stream = connect();
  if (!stream.ok()) return stream.status();
  if (Status status = send(**stream, *request, deadline_us); !status.ok()) return status;

  HttpAnswer http;
  Answer answer;
  bool begun = false;
  std::string buffer(kReadBytes, '\0');
  while (!http.complete()) {
    if (Status status = wait(**stream, false, deadline_us); !status.ok()) return status;
    const Result<size_t> n = (*stream)->read(buffer.data(), buffer.size());
    if (!n.ok() && n.status().code() != Code::kUnavailable) return n.status();
    const Status fed = n.ok() ? http.feed(std::string_view(buffer).substr(0, *n)) : http.end();
    const std::string body = http.take_body();
    const bool good = http.has_head() && http.status() == 200;
    if (good && !std::exchange(begun, true)) on_body("");
    if (good && !body.empty() && !on_body(body)) break;
    if (!good) answer.reason = shortened(answer.reason + body);
    if (!fed.ok()) return fed;
    if (n.ok() && *n > 0 && http.has_head()) deadline_us = now_us() + idle_ms * 1000;
  }
  answer.status = http.status();
  answer.retry_after_s = http.retry_after_s();
  return answer;
}

}  // namespace baton
