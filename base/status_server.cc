#include "base/status_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <vector>

#include "base/byte_stream.h"
#include "base/clock.h"
#include "base/socket.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 32;
constexpr size_t kHeaderBytesMax = 8 << 10;
constexpr int kReadsPerTurn = 16;
constexpr int64_t kConnectionUs = 5'000'000;  // from accept to end
constexpr int64_t kLingerUs = 500'000;        // for the client to take the answer and close
constexpr int64_t kRestUs = 100'000;          // without descriptors, before accepting again

const char* reason_phrase(int32_t code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

std::string response(const StatusReply& reply) {
  return "HTTP/1.1 " + std::to_string(reply.code) + " " + reason_phrase(reply.code) +
         "\r\nContent-Type: " + reply.content_type +
         "\r\nContent-Length: " + std::to_string(reply.body.size()) + "\r\nConnection: close\r\n" +
         (reply.code == 405 ? "Allow: GET\r\n" : "") + "\r\n" + reply.body;
}

StatusReply error_reply(int32_t code) {
  return {.code = code, .body = reason_phrase(code) + std::string("\n")};
}

// The answer to a request line as "GET /metrics?x HTTP/1.1".
StatusReply answer(std::string_view line, const StatusServer::Handler& handler) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end + 1 ||
      line.substr(target_end + 1, 7) != "HTTP/1." || line[method_end + 1] != '/')
    return error_reply(400);
  if (line.substr(0, method_end) != "GET") return error_reply(405);
  std::string_view path = line.substr(method_end + 1, target_end - method_end - 1);
  path = path.substr(0, path.find('?'));
  return handler(std::string(path));
}

// One client: its request is read, answered, and the end of its side awaited, so that no reset
// overtakes the answer.
class Client {
 public:
  Client(ScopedFd socket, int64_t now_us)
      : stream_(std::move(socket)), deadline_us_(now_us + kConnectionUs) {}

  // False: done with it.
  bool serve(const StatusServer::Handler& handler, int64_t now_us) {
    if (!ended_) read();
    if (out_.empty()) {
      const size_t end = in_.find("\r\n\r\n");
      if (end == std::string::npos && in_.size() < kHeaderBytesMax) return !ended_;
      out_ = response(end == std::string::npos ? error_reply(431)
                                               : answer(in_.substr(0, in_.find("\r\n")), handler));
    }
    return write(now_us) && (wants_write() || !ended_);
  }

  int fd() const { return stream_.fd(); }
  bool wants_write() const { return out_at_ < out_.size(); }
  int16_t events() const {
    return static_cast<int16_t>((ended_ ? 0 : POLLIN) | (wants_write() ? POLLOUT : 0));
  }
  int64_t deadline_us() const { return deadline_us_; }

 private:
  // What comes behind the request is read and forgotten. A client that sends without end does not
  // keep the others waiting. A client may close its side as soon as its request is out.
  void read() {
    char bytes[4096];
    for (int i = 0; i < kReadsPerTurn; ++i) {
      const Result<size_t> n = stream_.read(bytes, sizeof bytes);
      ended_ = !n.ok();
      if (ended_ || *n == 0) return;
      if (in_.size() < kHeaderBytesMax) in_.append(bytes, *n);
    }
  }

  bool write(int64_t now_us) {
    while (wants_write()) {
      const Result<size_t> n = stream_.write(std::string_view(out_).substr(out_at_));
      if (!n.ok()) return false;
      if (*n == 0) return true;
      out_at_ += *n;
      if (wants_write()) continue;
      ::shutdown(stream_.fd(), SHUT_WR);
      deadline_us_ = std::min(deadline_us_, now_us + kLingerUs);
    }
    return true;
  }

  TcpStream stream_;
  int64_t deadline_us_;
  std::string in_;
  std::string out_;
  size_t out_at_ = 0;
  bool ended_ = false;  // nothing more comes from the client
};

ScopedFd open_listener(const std::string& listen) {
  const Result<HostPort> target = parse_host_port(listen);
  if (!target.ok()) throw ConfigError("metrics_listen: " + target.status().message());
  const auto found = resolve(*target, /*numeric_only=*/false);
  if (!found.ok()) throw ConfigError("metrics_listen " + listen + ": " + found.status().message());
  Result<ScopedFd> listener = listen_tcp(found->front());
  if (!listener.ok())
    throw ConfigError("metrics_listen " + listen + ": " + listener.status().message());
  return std::move(*listener);
}

}  // namespace

class StatusServer::Impl {
 public:
  Impl(const std::string& listen, Handler handler)
      : handler_(std::move(handler)),
        listener_(open_listener(listen)),
        stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        thread_([this] { run(); }) {}
  ~Impl() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  int32_t port() const { return local_port(listener_); }

 private:
  void run() {
    for (;;) {
      std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0},
                                   {listener_.get(), listener_events(), 0}};
      for (const Client& client : clients_) waits.push_back({client.fd(), client.events(), 0});
      ::poll(waits.data(), waits.size(), wait_ms());
      if (waits[0].revents != 0) return;
      serve_clients(waits);
      if (waits[1].revents != 0) accept_waiting();
    }
  }

  // A full house leaves the next ones waiting in the kernel's queue.
  int16_t listener_events() const {
    const bool open = clients_.size() < kConnectionsMax && clock_.now_us() >= rest_until_us_;
    return open ? POLLIN : 0;
  }

  void serve_clients(const std::vector<pollfd>& waits) {
    const int64_t now_us = clock_.now_us();
    std::vector<Client> kept;
    for (size_t i = 0; i < clients_.size(); ++i) {
      Client& client = clients_[i];
      const bool alive = waits[i + 2].revents == 0 || client.serve(handler_, now_us);
      if (alive && now_us < client.deadline_us()) kept.push_back(std::move(client));
    }
    clients_ = std::move(kept);
  }

  void accept_waiting() {
    while (clients_.size() < kConnectionsMax) {
      SocketAddress from;
      Result<ScopedFd> socket = accept_tcp(listener_, &from);
      if (!socket.ok()) {
        if (socket.status().code() == Code::kResourceExhausted)
          rest_until_us_ = clock_.now_us() + kRestUs;
        return;
      }
      clients_.emplace_back(std::move(*socket), clock_.now_us());
    }
  }

  int wait_ms() const {
    const int64_t now_us = clock_.now_us();
    int64_t next_us = rest_until_us_ > now_us ? rest_until_us_ : INT64_MAX;
    for (const Client& client : clients_) next_us = std::min(next_us, client.deadline_us());
    if (next_us == INT64_MAX) return -1;
    return static_cast<int>(std::max<int64_t>(0, next_us - now_us) / 1000 + 1);
  }

  const Handler handler_;
  const SystemClock clock_;
  const ScopedFd listener_;
  const ScopedFd stop_;
  std::vector<Client> clients_;  // the thread's
  int64_t rest_until_us_ = 0;    // the thread's
  std::thread thread_;
};

StatusServer::StatusServer(const std::string& listen, Handler handler)
    : impl_(std::make_unique<Impl>(listen, std::move(handler))) {}

StatusServer::~StatusServer() = default;

int32_t StatusServer::port() const {
  return impl_->port();
}

}  // namespace baton
