#include "kvtransfer/mapped_channel.h"

#include <sys/epoll.h>

#include <utility>

#include "kvtransfer/message_stream.h"
#include "kvtransfer/unix_socket.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

static_assert(kMappedKeysMax == kMessageFdsMax);

class UnixChannel final : public MappedChannel {
 public:
  UnixChannel(PollLoop& loop, ScopedFd socket, Events events)
      : socket_(std::move(socket)), events_(std::move(events)) {
    watch_ = loop.watch(socket_.get(), EPOLLIN, [this](uint32_t) { on_ready(); });
  }
  bool crosses_hosts() const override { return false; }
  int32_t peer_pid() const override { return baton::peer_pid(socket_.get()); }
  Status send(std::string_view bytes, const std::vector<MemoryKeyView>& keys) override {
    std::vector<int> fds;
    for (const MemoryKeyView& key : keys) fds.push_back(key.fd);
    return send_message(socket_.get(), bytes, fds);
  }

 private:
  void on_ready() {
    Result<UnixMessage> got = receive_message(socket_.get());
    Status status = got.status();
    if (status.ok()) {
      MappedMessage message{.bytes = std::move(got->bytes), .keys = {}};
      for (ScopedFd& fd : got->fds) message.keys.push_back({.fd = std::move(fd), .handle = {}});
      status = events_.message(std::move(message));
    }
    if (status.ok()) return;
    watch_.reset();
    const auto closed = events_.closed;  // outlives this object
    closed(status);
  }

  const ScopedFd socket_;
  const Events events_;
  PollLoop::Watch watch_;
};

// A message: its bytes (u32 size first), then the handles.
class FabricChannel final : public MappedChannel {
 public:
  FabricChannel(PollLoop& loop, std::unique_ptr<ByteStream> stream, Events events)
      : on_message_(std::move(events.message)),
        stream_(
            loop, std::move(stream), [this](std::string_view message) { return take(message); },
            std::move(events.closed)) {}
  bool crosses_hosts() const override { return true; }
  int32_t peer_pid() const override { return 0; }
  Status send(std::string_view bytes, const std::vector<MemoryKeyView>& keys) override {
    WireWriter out;
    out.put_string(bytes);
    for (const MemoryKeyView& key : keys) {
      if (key.handle == nullptr) return unavailable("memory without a fabric handle");
      out.put(*key.handle);
    }
    stream_.send(out.take());
    return {};
  }

 private:
  Status take(std::string_view message) {
    WireReader in(message);
    MappedMessage got;
    if (!in.get_string(got.bytes)) return invalid_argument("malformed message");
    while (!in.at_end()) {
      FabricHandle handle;
      if (got.keys.size() == kMappedKeysMax || !in.get(handle))
        return invalid_argument("malformed message");
      got.keys.push_back({.fd = {}, .handle = handle});
    }
    return on_message_(std::move(got));
  }

  const std::function<Status(MappedMessage)> on_message_;
  MessageStream stream_;
};

}  // namespace

std::unique_ptr<MappedChannel> open_unix_channel(PollLoop& loop, ScopedFd socket,
                                                 MappedChannel::Events events) {
  return std::make_unique<UnixChannel>(loop, std::move(socket), std::move(events));
}

std::unique_ptr<MappedChannel> open_fabric_channel(PollLoop& loop,
                                                   std::unique_ptr<ByteStream> stream,
                                                   MappedChannel::Events events) {
  return std::make_unique<FabricChannel>(loop, std::move(stream), std::move(events));
}

}  // namespace baton
