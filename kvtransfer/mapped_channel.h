// The conversation of transport "mapped" (mapped.h): messages with what memory is imported by.
// Between processes of one host that is a descriptor, over a UNIX socket; between hosts of one
// NVLink fabric a handle of CUDA's, over TLS, since whoever knows it can import the memory.
// Handoff thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_stream.h"
#include "base/scoped_fd.h"
#include "base/status.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

inline constexpr size_t kMappedKeysMax = 32;  // of a message

struct MappedMessage {
  std::string bytes;
  std::vector<MemoryKey> keys;
};

class MappedChannel {
 public:
  struct Events {
    // Not ok: the conversation is over, `closed` follows.
    std::function<Status(MappedMessage)> message;
    // Once; the channel may be destroyed in it.
    std::function<void(const Status&)> closed;
  };

  virtual ~MappedChannel() = default;
  virtual bool crosses_hosts() const = 0;
  // What the kernel says of the other end's process; 0: not known.
  virtual int32_t peer_pid() const = 0;
  // `fd`, `handle`: of each key the one that travels is taken. Not ok: the other end is gone, or a
  // key has not what would travel.
  virtual Status send(std::string_view bytes, const std::vector<MemoryKeyView>& keys) = 0;
};

std::unique_ptr<MappedChannel> open_unix_channel(PollLoop& loop, ScopedFd socket,
                                                 MappedChannel::Events events);
std::unique_ptr<MappedChannel> open_fabric_channel(PollLoop& loop,
                                                   std::unique_ptr<ByteStream> stream,
                                                   MappedChannel::Events events);

}  // namespace baton
