// Control connections without sockets: messages wait in queues until the simulation delivers them;
// connections break when it says so. A frame that is damaged closes its connection, so damage is a
// loss here; within a connection nothing is lost, but the long lists behind OPEN and PREFILL let
// later messages overtake them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/link.h"
#include "tests/sim/random.h"

namespace baton::sim {

class Network;

// One process's Outbox. Gone from the network when destroyed: its connections break, as by kill -9.
class Endpoint final : public Outbox {
 public:
  using Sink = std::function<void(LinkEvent)>;

  // `address`: where others may connect to; empty for none (a router).
  Endpoint(Network& network, PeerInfo self, std::string address, Sink sink);
  ~Endpoint() override;

  void send(LinkId link, Message message) override;
  void close(LinkId link, const std::string& reason) override;
  void connect(const std::string& address) override { wanted_.insert(address); }
  void disconnect(const std::string& address) override { wanted_.erase(address); }
  // Called with each message before it is queued: where the seeded bugs sit.
  void watch_sends(std::function<void(LinkId, const Message&)> watcher) {
    watcher_ = std::move(watcher);
  }
  // Runs out when the connection breaks.
  Lease lease(LinkId link) const override { return leases_.at(link); }
  const PeerInfo& self() const { return self_; }
  // As SIGSTOP: it accepts no connection; what comes over those that it has must wait.
  void set_stopped(bool stopped) { stopped_ = stopped; }

 private:
  friend class Network;
  Network& network_;
  const PeerInfo self_;
  const std::string address_;
  const Sink sink_;
  std::function<void(LinkId, const Message&)> watcher_;
  LinkId add_link() {
    leases_[next_link_] = std::make_shared<std::atomic<int64_t>>(INT64_MAX);
    return next_link_++;
  }
  std::set<std::string> wanted_;
  std::map<LinkId, std::shared_ptr<std::atomic<int64_t>>> leases_;
  LinkId next_link_ = 1;
  bool stopped_ = false;
};

struct FrameFaults {
  double duplicate_share = 0;  // of the messages between workers, and of events: come twice
  double overtake_share = 0;   // of OPEN and PREFILL: let the next message pass
};

class Network {
 public:
  // What becomes of a message that is about to be delivered. False: it is lost, and its connection
  // with it.
  using Watcher =
      std::function<bool(const Endpoint& from, const Endpoint& to, const Message& message)>;

  Network(Random& random, const FrameFaults& faults, Watcher watcher)
      : random_(random), faults_(faults), watcher_(std::move(watcher)) {}

  // Each does one thing, chosen at random; false: there is nothing to do.
  bool deliver_one();
  bool dial_one();
  bool cut_one();  // breaks a connection; what was queued on it is lost
  void cut_all_of(const Endpoint& endpoint);

  size_t messages() const;  // queued

 private:
  friend class Endpoint;

  struct Side {
    Endpoint* endpoint = nullptr;
    LinkId link = 0;
    std::deque<Message> outgoing;
  };
  struct Connection {
    Side side[2];
    std::string address;  // side 0 has dialled it
  };

  Connection* find(const Endpoint& endpoint, LinkId link, int* side);
  Connection* dialled(const Endpoint& from, const std::string& address);
  void cut(Connection* connection, const std::string& reason, const Endpoint* dead);
  void remove(Endpoint& endpoint);
  std::vector<Connection*> connections_of(const Endpoint& endpoint) const;
  Message take(Side& sender);
  bool may_come_twice(const Message& message) const;

  Random& random_;
  const FrameFaults faults_;
  const Watcher watcher_;
  std::vector<Endpoint*> endpoints_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace baton::sim
