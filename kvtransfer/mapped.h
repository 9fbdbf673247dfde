// Transport "mapped": P imports D's slabs and copies into them itself: host memory with memcpy in
// its handoff thread, GPU memory with the copy engines (handoff_memory.h). For peers on one host
// that share the abstract socket namespace; whether they do is found out by connecting. And for
// GPUs of one NVLink clique on different hosts, where the driver makes fabric handles: then the
// conversation goes over TLS, whoever knows a handle being able to import the memory. That way has
// no proof of P's death: what P was granted stays in quarantine until P itself has drained it.
//
// The conversation, one message each, P asks and D answers (little-endian, first byte = kind; +
// what memory is imported by: mapped_channel.h):
//   P kHello{version, nonce} + its own pidfd (one host)
//                                   D kWelcome{kind of memory} + scratch; it watches the pidfd
//                                     before it hands out any memory
//   P kCheck{challenge}             D kChecked: both have seen each other's bytes in the scratch
//   P kWant{group, first slab}      D kSlabs{group, first slab} + slabs, up to 32
//   P kReady                        D drops the scratch memory
// Scratch memory is of the same kind as the slabs: 16 bytes of proof written by D, 16 bytes of
// challenge written by P, from kScratchProbeAt on P's probe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kvtransfer/data_listener.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/mapped_channel.h"
#include "kvtransfer/peer_watch.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/transport.h"

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
  // A socket's name; behind a blank the clique, behind another the addresses, where there is a
  // fabric.
  std::string endpoint() const override;
  void forget(LinkId link) override;
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;

 private:
  struct Connection;
  using OpenChannel = std::function<std::unique_ptr<MappedChannel>(MappedChannel::Events)>;
  void on_accept();
  void serve(const OpenChannel& open);
  void on_closed(uint64_t id, const Status& reason);
  bool has_fabric() const;
  Status answer(Connection& connection, MappedMessage message);
  Status welcome(Connection& connection, MappedMessage message);
  Status check(Connection& connection, const Nonce& challenge);
  Status send_slabs(Connection& connection, uint32_t group, uint32_t first);

  const TransportContext context_;
  std::string socket_name_;
  ScopedFd listener_;
  PeerWatch peers_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::unique_ptr<DataListener> fabric_listener_;  // null: there is no fabric
  PollLoop::Watch accept_watch_;
  PollLoop::Watch accept_pause_;
};

}  // namespace baton
