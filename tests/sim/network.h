// Control connections without sockets: messages wait in queues until the simulation delivers them;
// connections break when it says so.
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
  // Never runs out: whoever is stopped here is stopped as a whole, and says so by a cut.
  Lease lease(LinkId) const override {
    return std::make_shared<const std::atomic<int64_t>>(INT64_MAX);
  }

 private:
  friend class Network;
  Network& network_;
  const PeerInfo self_;
  const std::string address_;
  const Sink sink_;
  std::function<void(LinkId, const Message&)> watcher_;
  std::set<std::string> wanted_;
  LinkId next_link_ = 1;
};

class Network {
 public:
  explicit Network(Random& random) : random_(random) {}

  // Each does one thing, chosen at random; false: there is nothing to do.
  bool deliver_one();
  bool dial_one();
  bool cut_one();  // breaks a connection; what was queued on it is lost

  size_t messages() const;  // queued
  bool all_connected() const;

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

  Random& random_;
  std::vector<Endpoint*> endpoints_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace baton::sim
