// A client's connection, plain or under TLS, as Beast and Asio want their streams. Included by
// http_session.h only. Router loop thread only; one read and one write at a time.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace baton {

class HttpStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using TlsContext = std::shared_ptr<boost::asio::ssl::context>;
  using executor_type = Socket::executor_type;

  // `tls` null: plain.
  HttpStream(Socket socket, TlsContext tls) : tls_(std::move(tls)) {
    if (tls_ == nullptr) {
      plain_.emplace(std::move(socket));
    } else {
      secure_.emplace(std::move(socket), *tls_);
    }
  }

  bool secure() const { return secure_.has_value(); }
  Socket& socket() { return plain_ ? *plain_ : secure_->next_layer(); }
  executor_type get_executor() { return socket().get_executor(); }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (plain_) {
      plain_->async_read_some(buffers, std::forward<Handler>(handler));
    } else {
      secure_->async_read_some(buffers, std::forward<Handler>(handler));
    }
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (plain_) {
      plain_->async_write_some(buffers, std::forward<Handler>(handler));
    } else {
      secure_->async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

  // REQUIRES: secure().
  template <typename Handler>
  void async_handshake(Handler&& handler) {
    secure_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  // Tells the client that nothing follows, waits for it to say the same.
  template <typename Handler>
  void async_shutdown(Handler&& handler) {
    secure_->async_shutdown(std::forward<Handler>(handler));
  }

 private:
  const TlsContext tls_;  // outlives the stream made with it
  std::optional<Socket> plain_;
  std::optional<boost::asio::ssl::stream<Socket>> secure_;
};

}  // namespace baton
