#include "router/http_session.h"

#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>
#include <string>
#include <utility>
#include <vector>

#include "router/http_rules.h"
#include "router/openai_error.h"

namespace baton {
namespace http = boost::beast::http;

namespace {

constexpr size_t kPipelinedBytesMax = 64 << 10;  // read ahead while an answer is under way
constexpr int64_t kLingerMs = 1000;  // for the client to read an error before the connection goes

}  // namespace

// The handler's end of an answer. It may outlive the connection: then nothing happens.
class HttpSession::Reply final : public HttpReply {
 public:
  Reply(std::weak_ptr<HttpSession> session, uint64_t serial)
      : session_(std::move(session)), serial_(serial) {}

  void send(HttpResponse response) override {
    if (const auto session = session_.lock()) session->send(serial_, std::move(response));
  }
  void start_events() override {
    if (const auto session = session_.lock()) session->start_events(serial_);
  }
  void write(std::string_view events) override {
    if (const auto session = session_.lock()) session->write(serial_, events);
  }
  void end() override {
    if (const auto session = session_.lock()) session->end(serial_);
  }
  void on_gone(std::function<void()> gone) override {
    const auto session = session_.lock();
    if (session != nullptr && session->is_current(serial_)) {
      session->on_gone_ = std::move(gone);
    } else if (session != nullptr) {
      boost::asio::post(session->stream_.get_executor(), std::move(gone));
    } else {
      gone();  // the connection is no more: nobody else is on the stack of this session
    }
  }

 private:
  const std::weak_ptr<HttpSession> session_;
  const uint64_t serial_;
};

HttpSession::HttpSession(Socket socket, HttpStream::TlsContext tls, const HttpConfig& config,
                         HttpHandler& handler, OnClose on_close)
    : stream_(std::move(socket), std::move(tls)),
      timer_(stream_.get_executor()),
      config_(config),
      handler_(handler),
      on_close_(std::move(on_close)) {
  ErrorCode ignored;
  stream_.socket().set_option(boost::asio::ip::tcp::no_delay(true), ignored);
}

void HttpSession::start() {
  if (!stream_.secure()) return wait_for_request();
  arm(config_.read_timeout_ms);
  stream_.async_handshake([self = shared_from_this()](ErrorCode error) {
    if (self->closed_) return;
    if (error) return self->close();
    self->wait_for_request();
  });
}

bool HttpSession::idle() const {
  return state_ == State::kFlushing && output_.empty() && writing_.empty() && input_.size() == 0;
}

void HttpSession::drain() {
  draining_ = true;
  if (idle()) close();
}

void HttpSession::check_reader() {
  if (closed_ || writing_.empty()) return;
  const auto waited = std::chrono::steady_clock::now() - write_began_;
  if (waited > std::chrono::milliseconds(config_.write_timeout_ms)) close();
}

void HttpSession::close() {
  if (closed_) return;
  closed_ = true;
  timer_.cancel();
  ErrorCode ignored;
  stream_.socket().close(ignored);
  gone();
  boost::asio::post(stream_.get_executor(),
                    [self = shared_from_this()] { self->on_close_(self.get()); });
}

void HttpSession::arm(int64_t after_ms) {
  timer_.expires_after(std::chrono::milliseconds(after_ms));
  timer_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error) self->close();
  });
}

void HttpSession::wait_for_request() {
  arm(config_.keep_alive_ms);
  watch();  // which sees the request's first bytes, or that the client has gone
}

void HttpSession::read_head() {
  state_ = State::kReading;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(config_.header_bytes_max));
  parser_->body_limit(static_cast<uint64_t>(config_.body_bytes_max));
  arm(config_.read_timeout_ms);  // for all of the request, however slowly it drips in
  http::async_read_header(
      stream_, input_, *parser_,
      [self = shared_from_this()](ErrorCode error, size_t) { self->on_head(error); });
}

void HttpSession::on_head(ErrorCode error) {
  if (closed_) return;
  const auto& head = parser_->get();
  is_head_ = head.method() == http::verb::head;
  chunked_ = head.version() >= 11;
  keep_alive_ = !error && parser_->keep_alive();
  request_id_ = safe_request_id(head["X-Request-Id"]);
  request_id_sent_ = !request_id_.empty();
  if (!request_id_sent_) request_id_ = random_request_id();
  if (error) return on_read_error(error);
  if (!check_head()) return;
  http::async_read(
      stream_, input_, *parser_,
      [self = shared_from_this()](ErrorCode read_error, size_t) { self->on_body(read_error); });
}

bool HttpSession::check_head() {
  const auto& head = parser_->get();
  if (head.version() >= 11 && head.count(http::field::host) != 1) {
    refuse(400, "host: got " + std::to_string(head.count(http::field::host)) +
                    " of this header, want one (RFC 9112, 3.2)");
    return false;
  }
  std::vector<std::string_view> encodings;
  const auto [first, last] = head.equal_range(http::field::transfer_encoding);
  for (auto it = first; it != last; ++it) encodings.push_back(it->value());
  const std::string framing = framing_error(encodings, head.count(http::field::content_length) > 0);
  if (!framing.empty()) {
    refuse(400, framing);
    return false;
  }
  const auto length = parser_->content_length();
  if (length && *length > static_cast<uint64_t>(config_.body_bytes_max)) {
    refuse(413, "body: got " + std::to_string(*length) + " bytes, want at most " +
                    std::to_string(config_.body_bytes_max) + " (http.body_bytes_max)");
    return false;
  }
  if (!parser_->is_done()) {  // a body follows, which is read for a request that may be answered
    std::optional<HttpResponse> refusal = handler_.refuse_head(request_of(head));
    if (refusal) {
      refuse(std::move(*refusal));
      return false;
    }
  }
  if (boost::beast::iequals(head[http::field::expect], "100-continue")) {
    put("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return true;
}

void HttpSession::on_body(ErrorCode error) {
  if (closed_) return;
  if (error) return on_read_error(error);
  dispatch();
}

void HttpSession::on_read_error(ErrorCode error) {
  const bool http_error = error.category() == make_error_code(http::error::bad_method).category();
  if (!http_error || error == http::error::end_of_stream || error == http::error::partial_message) {
    return close();  // the client has gone before its request was whole
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse(431, "the request's header is larger than " +
                           std::to_string(config_.header_bytes_max) +
                           " bytes (http.header_bytes_max)");
  }
  if (error == http::error::body_limit) {
    return refuse(413, "the request's body is larger than " +
                           std::to_string(config_.body_bytes_max) + " bytes (http.body_bytes_max)");
  }
  refuse(400, "not a valid HTTP request: " + error.message());
}

void HttpSession::refuse(int status, const std::string& message) {
  handler_.refused(status);
  refuse(error_response(status, message));
}

void HttpSession::refuse(HttpResponse response) {
  keep_alive_ = false;  // where the next request would begin is not known
  state_ = State::kAnswering;
  head_sent_ = false;
  send(++serial_, std::move(response));
}

HttpRequest HttpSession::request_of(const Parser::value_type& message) const {
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = path_of(message.target()),
                      .content_type = std::string(message[http::field::content_type]),
                      .credential = bearer_key(message[http::field::authorization]),
                      .request_id = request_id_,
                      .request_id_sent = request_id_sent_,
                      .traceparent = safe_traceparent(message["traceparent"]),
                      .if_none_match = std::string(message[http::field::if_none_match])};
  if (request.credential.empty()) request.credential = std::string(message["X-Api-Key"]);
  return request;
}

void HttpSession::dispatch() {
  auto message = parser_->release();
  state_ = State::kAnswering;
  head_sent_ = false;
  timer_.cancel();
  ++serial_;
  HttpRequest request = request_of(message);
  request.body = std::move(message.body());
  if (message.method() == http::verb::options) {
    return send(serial_, preflight_response());
  }
  const uint64_t serial = serial_;
  handler_.handle(std::move(request), std::make_shared<Reply>(weak_from_this(), serial));
  if (is_current(serial)) watch();
}

void HttpSession::watch() {
  if (watching_ || closed_ || client_ended_ || input_.size() >= kPipelinedBytesMax) return;
  watching_ = true;
  stream_.async_read_some(input_.prepare(kPipelinedBytesMax - input_.size()),
                          [self = shared_from_this()](ErrorCode error, size_t bytes) {
                            self->on_watched(error, bytes);
                          });
}

void HttpSession::on_watched(ErrorCode error, size_t bytes) {
  watching_ = false;
  if (closed_) return;
  input_.commit(bytes);
  if (error == boost::asio::error::operation_aborted) error = {};  // by next_request()
  if (error == boost::asio::error::eof) {
    client_ended_ = true;
    keep_alive_ = false;
    if (state_ == State::kAnswering) return probe();
    const bool unwritten = !output_.empty() || !writing_.empty();
    if (state_ == State::kFlushing && unwritten) return;  // on_written() ends it
  }
  if (error) return close();
  switch (state_) {
    case State::kAnswering:
      return watch();
    case State::kLingering:
      return linger();
    case State::kFlushing:
      return next_request();
    case State::kReading:
      return;  // never: reading has its own handler
  }
}

// The client has closed its side: for good, or only for sending. What is sent to a closed
// connection comes back as a reset; an interim answer means nothing to a client that still reads.
void HttpSession::probe() {
  if (!head_sent_ && chunked_) put("HTTP/1.1 102 Processing\r\n\r\n");
  stream_.socket().async_wait(Socket::wait_error, [self = shared_from_this()](ErrorCode) {
    if (!self->closed_) self->close();
  });
}

void HttpSession::gone() {
  if (on_gone_) boost::asio::post(stream_.get_executor(), std::exchange(on_gone_, nullptr));
}

void HttpSession::send(uint64_t serial, HttpResponse response) {
  if (!is_current(serial) || head_sent_) return;
  head_sent_ = true;
  keep_alive_ = keep_alive_ && !draining_;
  put(answer_head(response, request_id_, keep_alive_));
  if (!is_head_) put(response.body);
  finish_answer();
}

void HttpSession::start_events(uint64_t serial) {
  if (!is_current(serial) || head_sent_) return;
  head_sent_ = true;
  keep_alive_ = keep_alive_ && chunked_ && !draining_;
  put(events_head(request_id_, keep_alive_, chunked_));
}

void HttpSession::write(uint64_t serial, std::string_view events) {
  if (!is_current(serial) || events.empty()) return;
  if (chunked_) {
    put(body_chunk(events));
  } else {
    put(events);
  }
  const auto queued = static_cast<int64_t>(output_.size() + writing_.size() - written_);
  if (queued > config_.write_buffer_bytes_max) close();  // it does not read
}

void HttpSession::end(uint64_t serial) {
  if (!is_current(serial)) return;
  if (chunked_) put(last_chunk());
  finish_answer();
}

void HttpSession::finish_answer() {
  state_ = State::kFlushing;
  on_gone_ = nullptr;
}

void HttpSession::put(std::string_view bytes) {
  output_ += bytes;
  if (flush_posted_ || !writing_.empty()) return;
  flush_posted_ = true;  // after what else this turn of the loop has to say
  boost::asio::post(stream_.get_executor(), [self = shared_from_this()] {
    self->flush_posted_ = false;
    self->flush();
  });
}

void HttpSession::flush() {
  if (closed_ || !writing_.empty() || output_.empty()) return;
  writing_.swap(output_);
  written_ = 0;
  write_on();
}

void HttpSession::write_on() {
  write_began_ = std::chrono::steady_clock::now();
  stream_.async_write_some(boost::asio::buffer(writing_) + written_,
                           [self = shared_from_this()](ErrorCode error, size_t bytes) {
                             self->on_written(error, bytes);
                           });
}

void HttpSession::on_written(ErrorCode error, size_t bytes) {
  if (closed_) return;
  if (error) return close();
  written_ += bytes;
  if (written_ < writing_.size()) return write_on();
  writing_.clear();
  if (!output_.empty()) return flush();
  if (state_ == State::kFlushing) next_request();
}

void HttpSession::next_request() {
  if (!output_.empty() || !writing_.empty() || closed_) return;
  const bool last = draining_ && input_.size() == 0;
  if (last && !stream_.secure()) return close();
  if (last || !keep_alive_) return say_goodbye();
  if (input_.size() == 0) return wait_for_request();
  if (!watching_) return read_head();
  ErrorCode ignored;
  stream_.socket().cancel(ignored);  // the watch, which comes back here
}

// Under TLS the end is told inside the stream, which wants the watch's read to be over.
void HttpSession::say_goodbye() {
  state_ = State::kLingering;
  arm(kLingerMs);
  ErrorCode ignored;
  if (stream_.secure()) {
    if (watching_) stream_.socket().cancel(ignored);  // on_watched() comes back to linger()
    return linger();
  }
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
  if (client_ended_) return close();
  linger();
}

// Reading on for a moment keeps the reset away that unread input would cause before the client has
// our answer.
void HttpSession::linger() {
  if (watching_) return;
  input_.clear();
  if (!stream_.secure()) return watch();
  stream_.async_shutdown([self = shared_from_this()](ErrorCode) {
    if (!self->closed_) self->close();
  });
}

}  // namespace baton
