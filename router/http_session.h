// One client connection: requests in, one after the other, answers out. Only http_server.cc and
// http_session.cc include this; Beast and Asio stay behind it. Router loop thread only.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "router/http_stream.h"
#include "router/http_types.h"

namespace baton {

class HttpSession final : public std::enable_shared_from_this<HttpSession> {
 public:
  using Socket = HttpStream::Socket;
  using OnClose = std::function<void(HttpSession*)>;

  // `tls` null: plain HTTP. `on_close` is called once, when the connection has ended.
  HttpSession(Socket socket, HttpStream::TlsContext tls, const HttpConfig& config,
              HttpHandler& handler, OnClose on_close);

  void start();
  // For one request: the process drains.
  void start_last() {
    draining_ = true;
    start();
  }
  bool idle() const;  // neither a request nor an answer is under way
  // Closes after the answer under way, at once if there is none.
  void drain();
  // Closes if the client has taken nothing of what is queued for write_timeout_ms. Called often.
  void check_reader();
  void close();

 private:
  class Reply;
  using ErrorCode = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Reading a request.
  void wait_for_request();
  void read_head();
  void on_head(ErrorCode error);
  bool check_head();  // false: has answered with an error
  void on_body(ErrorCode error);
  void dispatch();
  void refuse(int status, const std::string& message);
  void refuse(HttpResponse response);
  HttpRequest request_of(const Parser::value_type& message) const;  // without its body
  void on_read_error(ErrorCode error);

  // While a request is being answered: what comes early, and the client's going.
  void watch();
  void on_watched(ErrorCode error, size_t bytes);
  void probe();
  void gone();

  // Answering; `serial` tells the current answer from one that is over.
  void send(uint64_t serial, HttpResponse response);
  void start_events(uint64_t serial);
  void write(uint64_t serial, std::string_view events);
  void end(uint64_t serial);
  void finish_answer();
  void put(std::string_view bytes);  // queues output
  void flush();
  void write_on();
  void on_written(ErrorCode error, size_t bytes);

  void arm(int64_t after_ms);  // closes the connection then, unless armed anew
  void next_request();
  void say_goodbye();
  void linger();
  bool is_current(uint64_t serial) const {
    return !closed_ && state_ == State::kAnswering && serial == serial_;
  }

  HttpStream stream_;
  boost::asio::steady_timer timer_;
  const HttpConfig& config_;
  HttpHandler& handler_;
  OnClose on_close_;

  // kFlushing lasts from an answer's end, or the connection's beginning, until the client sends
  // more; kLingering until the connection is closed.
  enum class State : uint8_t { kReading, kAnswering, kFlushing, kLingering };
  State state_ = State::kFlushing;
  boost::beast::flat_buffer input_;
  std::optional<Parser> parser_;
  // Of the request being read or answered:
  uint64_t serial_ = 0;
  bool head_sent_ = false;
  bool is_head_ = false;  // HEAD: no body goes out
  bool keep_alive_ = true;
  bool chunked_ = true;  // the client knows chunked bodies (HTTP/1.1)
  std::string request_id_;
  bool request_id_sent_ = false;  // by the client
  std::function<void()> on_gone_;

  std::string output_;                                 // queued
  std::string writing_;                                // in the socket's hands
  size_t written_ = 0;                                 // of it
  std::chrono::steady_clock::time_point write_began_;  // of the write under way
  bool flush_posted_ = false;
  bool watching_ = false;
  bool client_ended_ = false;  // its side of the connection is closed; it may still read
  bool draining_ = false;
  bool closed_ = false;
};

}  // namespace baton
