#include "router/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "router/http_rules.h"
#include "router/http_session.h"
#include "router/http_tls.h"
#include "router/openai_error.h"

namespace baton {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int64_t kAcceptRetryMs = 100;        // after running out of file descriptors
constexpr int64_t kCertificateCheckMs = 1000;  // its files are looked at so often
constexpr int64_t kReaderCheckMs = 1000;  // readers that stop are looked for so often, or oftener

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpConfig& config, HttpHandler& handler)
      : config_(config), handler_(handler), tls_(config.tls_cert_file, config.tls_key_file) {
    const std::string place = config.host + ":" + std::to_string(config.port);
    boost::system::error_code error;
    const auto found =
        tcp::resolver(loop_).resolve(config.host, std::to_string(config.port), error);
    if (error || found.empty()) {
      throw ConfigError("http.host: got " + config.host +
                        ", want an address of this machine: " + error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) throw ConfigError("http.port: cannot listen on " + place + ": " + error.message());
  }

  void run() {
    accept();
    every(kCertificateCheckMs, [this] { tls_.refresh(); });
    every(std::clamp<int64_t>(config_.write_timeout_ms / 8, 1, kReaderCheckMs),
          [this] { for_each_session([](HttpSession& session) { session.check_reader(); }); });
    loop_.run();
  }

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error) return accept_later();
      if (sessions_.size() >= static_cast<size_t>(config_.connections_max)) {
        turn_away(std::move(socket));
      } else {
        add(std::move(socket));
      }
      accept();
    });
  }

  void accept_later() {
    retry_.expires_after(std::chrono::milliseconds(kAcceptRetryMs));
    retry_.async_wait([this](boost::system::error_code error) {
      if (!error) accept();
    });
  }

  void turn_away(tcp::socket socket) {
    handler_.refused(503);
    if (tls_.context() != nullptr) return;  // a handshake is what there is no room for
    const HttpResponse response = error_response(
        unavailable("too many connections, want at most " +
                    std::to_string(config_.connections_max) + " (http.connections_max)"));
    const std::string answer = answer_head(response, "", false) + response.body;
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(answer), ignored);
  }

  void add(tcp::socket socket) {
    const auto session =
        std::make_shared<HttpSession>(std::move(socket), tls_.context(), config_, handler_,
                                      [this](HttpSession* closed) { sessions_.erase(closed); });
    sessions_.emplace(session.get(), session);
    if (draining_) {
      session->start_last();
    } else {
      session->start();
    }
  }

  void every(int64_t period_ms, std::function<void()> tick) {
    timers_.push_back(std::make_unique<asio::steady_timer>(loop_));
    asio::steady_timer& timer = *timers_.back();
    timer.expires_after(std::chrono::milliseconds(period_ms));
    wait(timer, period_ms, std::move(tick));
  }

  void wait(asio::steady_timer& timer, int64_t period_ms, std::function<void()> tick) {
    timer.async_wait(
        [this, &timer, period_ms, tick = std::move(tick)](boost::system::error_code error) mutable {
          if (error) return;
          tick();
          // From now, not from when it was due: a loop that was held up does not tick in a burst.
          timer.expires_after(std::chrono::milliseconds(period_ms));
          wait(timer, period_ms, std::move(tick));
        });
  }

  size_t busy() const {
    return static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(),
                                             [](const auto& s) { return !s.second->idle(); }));
  }

  void drain() {
    draining_ = true;
    for_each_session([](HttpSession& session) { session.drain(); });
  }

  // A session that closes leaves the map, but by a job that is posted.
  template <typename Call>
  void for_each_session(Call&& call) {
    for (const auto& [key, session] : sessions_) call(*session);
  }

  const HttpConfig config_;
  HttpHandler& handler_;
  HttpTls tls_;
  asio::io_context loop_{1};
  tcp::acceptor acceptor_{loop_};
  asio::steady_timer retry_{loop_};
  std::vector<std::unique_ptr<asio::steady_timer>> timers_;
  std::unordered_map<HttpSession*, std::shared_ptr<HttpSession>> sessions_;
  bool draining_ = false;
};

HttpServer::HttpServer(const HttpConfig& config, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(config, handler)) {}
HttpServer::~HttpServer() = default;

void HttpServer::run() {
  impl_->run();
}
void HttpServer::post(std::function<void()> job) {
  asio::post(impl_->loop_, std::move(job));
}
void HttpServer::every(int64_t period_ms, std::function<void()> tick) {
  impl_->every(period_ms, std::move(tick));
}
void HttpServer::drain() {
  impl_->drain();
}
void HttpServer::stop() {
  impl_->loop_.stop();
}
size_t HttpServer::connections() const {
  return impl_->sessions_.size();
}
size_t HttpServer::busy() const {
  return impl_->busy();
}
int32_t HttpServer::port() const {
  return impl_->acceptor_.local_endpoint().port();
}

}  // namespace baton
