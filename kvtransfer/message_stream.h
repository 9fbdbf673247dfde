// Whole messages over a stream of ours (TLS where links have it): what the two ends of a transport
// say beside the pages (nccl.h, mapped_channel.h). A message is u32 size, then its bytes. Handoff
// thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/byte_stream.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

inline constexpr size_t kStreamMessageBytesMax = 64 << 10;
// That wait for the peer to read, after it has been answered: the protocols above have a few
// messages under way at a time.
inline constexpr size_t kStreamUnreadBytesMax = 1 << 20;

class MessageStream {
 public:
  // Not ok: the connection is over.
  using OnMessage = std::function<Status(std::string_view)>;
  // Once; the stream may be destroyed in it. No message follows.
  using OnClosed = std::function<void(const Status&)>;

  // A connected stream.
  MessageStream(PollLoop& loop, std::unique_ptr<ByteStream> stream, OnMessage on_message,
                OnClosed on_closed);
  // Only queues: an error comes by OnClosed, later.
  void send(std::string_view message);

 private:
  void on_ready(uint32_t epoll_events);
  Status read();
  Status take_messages();
  Status flush();
  Status does_not_read() const;

  const std::unique_ptr<ByteStream> stream_;
  const OnMessage on_message_;
  const OnClosed on_closed_;
  std::string received_;  // of messages that are not whole yet
  std::string to_send_;
  PollLoop::Watch watch_;
};

}  // namespace baton
