// Links: the control connections of a process. Owns an I/O thread; sockets, hello, authentication,
// framing, heartbeats and leases live there. The process's loop sees whole messages only, through
// its sink. docs/protocol.md, "Leases".
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/credential_files.h"
#include "base/link_stats.h"
#include "base/messages.h"
#include "config/config.h"

namespace baton {

// Numbers the connections of this process, never reused: a reconnect is a new link.
using LinkId = uint64_t;

struct LinkUp {
  LinkId link = 0;
  PeerInfo peer;
  std::string address;  // as given to connect(); empty for an accepted one
};
struct LinkDown {
  LinkId link = 0;
  std::string reason;
};
struct LinkMessage {
  LinkId link = 0;
  Message message;
};
using LinkEvent = std::variant<LinkUp, LinkDown, LinkMessage>;

// Until when (Clock::now_us) the peer of a link has promised to keep what it has granted us: the
// sending time of our last heartbeat that it has acknowledged, plus the lease. Written by the I/O
// thread, read by the handoff thread before each copy.
using Lease = std::shared_ptr<const std::atomic<int64_t>>;

// What the loops' parts send through. Implemented by Links and by the test simulator.
class Outbox {
 public:
  virtual ~Outbox() = default;
  // Queues `message`; order is kept per link. A message to a link that is gone vanishes (LinkDown
  // tells, or has told).
  virtual void send(LinkId link, Message message) = 0;
  // Closes the link; LinkDown follows.
  virtual void close(LinkId link, const std::string& reason) = 0;
  // Starts keeping a connection to address ("host:port"); LinkUp tells of each success. Idempotent.
  // A pair of processes that dial each other has two links, one each way.
  virtual void connect(const std::string& address) = 0;
  virtual void disconnect(const std::string& address) = 0;
  // Null: no lease, never runs out (simulators).
  virtual Lease lease(LinkId /*link*/) const { return nullptr; }
};

// Thread-safe. The sink is called from the I/O thread, from the constructor on, and must not block.
class Links final : public Outbox {
 public:
  using Sink = std::function<void(LinkEvent)>;

  // `listen`: "host:port" (port 0: any, see port()), or empty for none. Throws ConfigError when it
  // cannot listen, or when it would listen beyond loopback without a cluster token. `credentials`:
  // those of `config`, where others use them too; null: Links reads its own.
  Links(const LinkConfig& config, PeerInfo self, const std::string& listen, const Clock& clock,
        Sink sink, std::shared_ptr<CredentialFiles> credentials = nullptr);
  ~Links() override;  // closes everything, joins the thread; no sink call after it

  void send(LinkId link, Message message) override;
  void close(LinkId link, const std::string& reason) override;
  void connect(const std::string& address) override;
  void disconnect(const std::string& address) override;
  Lease lease(LinkId link) const override;
  // Undoes connect(), but a link that is up stays until it ends by itself.
  void release(const std::string& address);
  // The I/O thread polls for so long instead of sleeping: something is about to be sent.
  void linger(std::chrono::microseconds duration);
  LinkStats stats() const;  // at most a heartbeat old
  int32_t port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
