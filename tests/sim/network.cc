#include "tests/sim/network.h"

#include <algorithm>

#include "base/check.h"

namespace baton::sim {

Endpoint::Endpoint(Network& network, PeerInfo self, std::string address, Sink sink)
    : network_(network),
      self_(std::move(self)),
      address_(std::move(address)),
      sink_(std::move(sink)) {
  network_.endpoints_.push_back(this);
}

Endpoint::~Endpoint() {
  network_.remove(*this);
}

void Endpoint::send(LinkId link, Message message) {
  int side = 0;
  if (watcher_) watcher_(link, message);
  if (auto* connection = network_.find(*this, link, &side))
    connection->side[side].outgoing.push_back(std::move(message));
}

void Endpoint::close(LinkId link, const std::string& reason) {
  int side = 0;
  if (auto* connection = network_.find(*this, link, &side))
    network_.cut(connection, reason, nullptr);
}

bool Network::deliver_one() {
  std::vector<std::pair<Connection*, int>> ready;
  for (const auto& connection : connections_) {
    for (int side = 0; side < 2; ++side) {
      if (!connection->side[side].outgoing.empty()) ready.emplace_back(connection.get(), side);
    }
  }
  if (ready.empty()) return false;
  auto [connection, from] = ready[random_.below(ready.size())];
  Side& sender = connection->side[from];
  Side& receiver = connection->side[1 - from];
  Message message = take(sender);
  if (!watcher_(*sender.endpoint, *receiver.endpoint, message)) {
    cut(connection, "a message was lost", nullptr);
    return true;
  }
  if (may_come_twice(message) && random_.chance(faults_.duplicate_share))
    sender.outgoing.push_back(message);
  receiver.endpoint->sink_(LinkMessage{receiver.link, std::move(message)});
  return true;
}

Message Network::take(Side& sender) {
  std::deque<Message>& queue = sender.outgoing;
  const bool is_long =
      std::holds_alternative<Open>(queue[0]) || std::holds_alternative<Prefill>(queue[0]);
  if (queue.size() > 1 && is_long && random_.chance(faults_.overtake_share))
    std::swap(queue[0], queue[1]);
  Message message = std::move(queue.front());
  queue.pop_front();
  return message;
}

// A connection repeats nothing, but the handlers of these promise to bear it.
bool Network::may_come_twice(const Message& message) const {
  return !std::holds_alternative<Open>(message) && !std::holds_alternative<Prefill>(message);
}

bool Network::dial_one() {
  std::vector<std::pair<Endpoint*, Endpoint*>> possible;
  for (Endpoint* from : endpoints_) {
    for (Endpoint* to : endpoints_) {
      if (from != to && !from->stopped_ && !to->stopped_ &&
          from->wanted_.count(to->address_) != 0 && dialled(*from, to->address_) == nullptr) {
        possible.emplace_back(from, to);
      }
    }
  }
  if (possible.empty()) return false;
  auto [from, to] = possible[random_.below(possible.size())];
  auto connection = std::make_unique<Connection>();
  connection->side[0] = Side{from, from->add_link(), {}};
  connection->side[1] = Side{to, to->add_link(), {}};
  connection->address = to->address_;
  const LinkId from_link = connection->side[0].link;
  const LinkId to_link = connection->side[1].link;
  connections_.push_back(std::move(connection));
  from->sink_(LinkUp{from_link, to->self_, to->address_});
  to->sink_(LinkUp{to_link, from->self_, ""});
  return true;
}

bool Network::cut_one() {
  if (connections_.empty()) return false;
  cut(connections_[random_.below(connections_.size())].get(), "cut", nullptr);
  return true;
}

size_t Network::messages() const {
  size_t count = 0;
  for (const auto& connection : connections_)
    count += connection->side[0].outgoing.size() + connection->side[1].outgoing.size();
  return count;
}

Network::Connection* Network::find(const Endpoint& endpoint, LinkId link, int* side) {
  for (const auto& connection : connections_) {
    for (int i = 0; i < 2; ++i) {
      if (connection->side[i].endpoint != &endpoint || connection->side[i].link != link) continue;
      *side = i;
      return connection.get();
    }
  }
  return nullptr;
}

Network::Connection* Network::dialled(const Endpoint& from, const std::string& address) {
  for (const auto& connection : connections_) {
    if (connection->side[0].endpoint == &from && connection->address == address)
      return connection.get();
  }
  return nullptr;
}

void Network::cut(Connection* connection, const std::string& reason, const Endpoint* dead) {
  for (const Side& side : connection->side) {
    if (side.endpoint == dead) continue;
    side.endpoint->leases_.at(side.link)->store(0);
    side.endpoint->sink_(LinkDown{side.link, reason});
  }
  std::erase_if(connections_, [&](const auto& entry) { return entry.get() == connection; });
}

void Network::remove(Endpoint& endpoint) {
  std::erase(endpoints_, &endpoint);
  for (Connection* connection : connections_of(endpoint)) cut(connection, "peer died", &endpoint);
}

void Network::cut_all_of(const Endpoint& endpoint) {
  for (Connection* connection : connections_of(endpoint))
    cut(connection, "no sign of life", nullptr);
}

std::vector<Network::Connection*> Network::connections_of(const Endpoint& endpoint) const {
  std::vector<Connection*> found;
  for (const auto& connection : connections_) {
    if (connection->side[0].endpoint == &endpoint || connection->side[1].endpoint == &endpoint)
      found.push_back(connection.get());
  }
  return found;
}

}  // namespace baton::sim
