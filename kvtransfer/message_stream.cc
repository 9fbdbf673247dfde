#include "kvtransfer/message_stream.h"

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "kvtransfer/wire.h"

namespace baton {

MessageStream::MessageStream(PollLoop& loop, std::unique_ptr<ByteStream> stream,
                             OnMessage on_message, OnClosed on_closed)
    : stream_(std::move(stream)),
      on_message_(std::move(on_message)),
      on_closed_(std::move(on_closed)) {
  const bool writes = stream_->wants_write(false);
  watch_ = loop.watch(stream_->fd(), writes ? EPOLLIN | EPOLLOUT : uint32_t{EPOLLIN},
                      [this](uint32_t events) { on_ready(events); });
}

void MessageStream::send(std::string_view message) {
  WireWriter out;
  out.put_string(message);
  to_send_ += out.take();
  watch_.set_events(EPOLLIN | EPOLLOUT);
}

void MessageStream::on_ready(uint32_t epoll_events) {
  Status status;
  if ((epoll_events & ~uint32_t{EPOLLOUT}) != 0) status = read();
  if (status.ok()) status = flush();
  if (status.ok() && to_send_.size() > kStreamUnreadBytesMax) status = does_not_read();
  if (status.ok()) return;
  watch_.reset();
  const OnClosed on_closed = on_closed_;  // outlives this object
  on_closed(status);
}

Status MessageStream::does_not_read() const {
  return {Code::kResourceExhausted, "the peer does not read: " + std::to_string(to_send_.size()) +
                                        " bytes wait for it, want at most " +
                                        std::to_string(kStreamUnreadBytesMax)};
}

Status MessageStream::read() {
  std::array<char, 16 << 10> bytes;
  do {
    const Result<size_t> got = stream_->read(bytes.data(), bytes.size());
    if (!got.ok()) return got.status();
    received_.append(bytes.data(), *got);
    if (const Status status = take_messages(); !status.ok()) return status;
  } while (stream_->buffered());  // of that, the socket would not tell again
  return {};
}

Status MessageStream::take_messages() {
  size_t at = 0;
  uint32_t size = 0;
  while (received_.size() - at >= sizeof(size)) {
    std::memcpy(&size, received_.data() + at, sizeof(size));
    if (size > kStreamMessageBytesMax)
      return invalid_argument("message of " + std::to_string(size) + " bytes, want at most " +
                              std::to_string(kStreamMessageBytesMax));
    if (received_.size() - at - sizeof(size) < size) break;
    const Status status = on_message_(std::string_view(received_).substr(at + sizeof(size), size));
    if (!status.ok()) return status;
    at += sizeof(size) + size;
  }
  received_.erase(0, at);
  return {};
}

Status MessageStream::flush() {
  while (!to_send_.empty()) {
    const Result<size_t> sent = stream_->write(to_send_);
    if (!sent.ok()) return sent.status();
    if (*sent == 0) break;
    to_send_.erase(0, *sent);
  }
  const bool writes = stream_->wants_write(!to_send_.empty());
  watch_.set_events(writes ? EPOLLIN | EPOLLOUT : uint32_t{EPOLLIN});
  return {};
}

}  // namespace baton
