// Transport "mapped": P imports D's slabs (file descriptors that come over a UNIX socket) and
// copies into them itself: host memory with memcpy in its handoff thread, GPU memory with the copy
// engines (handoff_memory.h). For peers on one host that share the abstract socket namespace;
// whether they do is found out by connecting.
//
// The conversation, one message each, P asks and D answers (little-endian, first byte = kind):
//   P kHello{version, nonce} + its own pidfd   D kWelcome{kind of memory} + scratch        D
//   watches the pidfd before it hands out any memory P kCheck{challenge}                        D
//   kChecked both have seen each other's bytes in the scratch memory P kWant{group, first slab} D
//   kSlabs{group, first slab} + memfds, up to 32 P kReady D drops the scratch memory
// Scratch memory is of the same kind as the slabs: 16 bytes of proof written by D, 16 bytes of
// challenge written by P, from kScratchProbeAt on P's probe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/peer_watch.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/transport.h"
#include "kvtransfer/unix_socket.h"

namespace baton {

inline constexpr uint16_t kMappedVersion = 1;
inline constexpr int64_t kScratchChallengeAt = sizeof(Nonce);
inline constexpr int64_t kScratchProbeAt = 4096;
inline constexpr int64_t kScratchBytes = kScratchProbeAt + kProbeSliceBytes * kProbeSlices;

enum class MappedKind : uint8_t { kHello = 1, kWelcome, kCheck, kChecked, kWant, kSlabs, kReady };

// D's listener and connections, and P's connect(). Construction throws ConfigError when it cannot
// listen.
class MappedTransport final : public Transport {
 public:
  explicit MappedTransport(const TransportContext& context);
  ~MappedTransport() override;
  const char* name() const override { return "mapped"; }
  bool stores_ourselves() const override { return false; }
  std::string endpoint() const override { return socket_name_; }
  void forget(LinkId link) override;
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;

 private:
  struct Connection;
  void on_accept();
  void on_message(uint64_t id);
  Status answer(Connection& connection);
  Status welcome(Connection& connection, UnixMessage message);
  Status check(Connection& connection, const Nonce& challenge);
  Status send_slabs(Connection& connection, uint32_t group, uint32_t first);

  const TransportContext context_;
  std::string socket_name_;
  ScopedFd listener_;
  PeerWatch peers_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  PollLoop::Watch accept_watch_;
  PollLoop::Watch accept_pause_;
};

}  // namespace baton
