// The part of LinkLoop about peers: connections come, prove themselves, and go.
#include <sys/epoll.h>

#include <algorithm>

#include "base/link_loop.h"
#include "base/log.h"

namespace baton {
namespace {

constexpr int64_t kListenerRestUs = 100'000;

uint32_t interest(bool writes) {
  return writes ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

// Workers are known by their name, so that a restarted one replaces what it was; routers may share
// a name.
bool same_party(const PeerInfo& a, const PeerInfo& b) {
  return a.worker_id == b.worker_id && (a.role != Role::kRouter || a.epoch == b.epoch);
}

}  // namespace

LinkConnection* LinkLoop::find(LinkId link) {
  const auto at = connections_.find(link);
  return at == connections_.end() ? nullptr : at->second.get();
}

void LinkLoop::accept_waiting() {
  for (;;) {
    SocketAddress from;
    Result<ScopedFd> socket = accept_tcp(listener_, &from);
    if (!socket.ok() && socket.status().code() == Code::kResourceExhausted) return rest_listener();
    if (!socket.ok()) return;
    if (connections_.size() >= static_cast<size_t>(config_.connections_max)) {
      log_warn("link_refused",
               {{"reason", "link.connections_max reached"}, {"connections", connections_.size()}});
      continue;
    }
    begin(std::move(*socket), Hello::Side::kAcceptor, "");
  }
}

// Without descriptors the waiting connection stays waiting; asking again at once would turn the
// loop into a spin.
void LinkLoop::rest_listener() {
  log_warn("link_refused", {{"reason", "out of file descriptors or memory"}});
  accept_again_us_ = now_us_ + kListenerRestUs;
  watch(listener_.get(), kListenerTag, 0, EPOLL_CTL_MOD);
}

void LinkLoop::dial(const std::string& address) {
  const Result<HostPort> target = parse_host_port(address);
  if (!target.ok())
    return dialer_.ended(address, LinkDialer::kNoLink, now_us_, target.status().message());
  if (const auto found = resolve(*target, /*numeric_only=*/true); found.ok())
    return dial_socket(address, *found);
  if (resolver_ == nullptr)
    resolver_ = std::make_unique<Resolver>(
        [this](const std::string& asked, Result<std::vector<SocketAddress>> found) {
          post(Resolved{asked, std::move(found)});
        });
  if (!resolver_->ask(address))
    dialer_.ended(address, LinkDialer::kNoLink, now_us_, "too many names to resolve");
}

void LinkLoop::dial_socket(const std::string& address, const std::vector<SocketAddress>& found) {
  const SocketAddress& target = found[(dialer_.tries(address) - 1) % found.size()];
  if (token_.empty() && !is_loopback(target))
    return dialer_.ended(address, LinkDialer::kNoLink, now_us_,
                         "link.token_file: got none, want one beyond loopback");
  Result<ScopedFd> socket = connect_tcp(target);
  if (!socket.ok())
    return dialer_.ended(address, LinkDialer::kNoLink, now_us_, socket.status().message());
  begin(std::move(*socket), Hello::Side::kDialer, address);
}

void LinkLoop::begin(ScopedFd socket, Hello::Side side, const std::string& address) {
  const LinkId link = next_link_++;
  auto connection = std::make_unique<LinkConnection>(
      link, std::make_unique<TcpStream>(std::move(socket)),
      Hello(side, self_, config_.lease_ms, token_, random_hello_nonce()), address, config_,
      now_us_);
  next_tick_us_ = std::min(next_tick_us_, connection->next_tick_us());
  const bool writes = connection->wants_write();
  connection->write_watched = writes;
  watch(connection->fd(), link, interest(writes), EPOLL_CTL_ADD);
  if (side == Hello::Side::kDialer) dialer_.started(address, link);
  connections_.emplace(link, std::move(connection));
}

void LinkLoop::serve(LinkId link) {
  if (LinkConnection* connection = find(link)) connection->receive(now_us_);
  // Each event may end the connection, so it is looked up again.
  while (LinkConnection* connection = find(link)) {
    LinkConnection::Event event = connection->next(now_us_);
    if (std::holds_alternative<LinkConnection::Nothing>(event)) {
      flush(link);
      return;
    }
    if (std::holds_alternative<LinkConnection::Up>(event)) {
      announce_up(*connection);
    } else if (auto* message = std::get_if<Message>(&event)) {
      sink_(LinkMessage{link, std::move(*message)});
    } else {
      flush(link);  // a refusal may wait to be said
      if (find(link) != nullptr) drop(link, std::get<Status>(event).message());
    }
  }
}

void LinkLoop::announce_up(LinkConnection& connection) {
  drop_older_of(connection);
  dialer_.succeeded(connection.address());
  next_tick_us_ = now_us_;
  {
    std::lock_guard lock(mutex_);
    leases_[connection.id()] = connection.lease();
  }
  const PeerInfo& peer = connection.peer();
  log_info("link_up", {{"link", connection.id()},
                       {"peer", peer.worker_id},
                       {"role", role_name(peer.role)},
                       {"dialled", connection.dialled()}});
  sink_(LinkUp{connection.id(), peer, connection.address()});
}

// A pair has one link in each direction of dialling: a second one means that the peer has come
// anew.
void LinkLoop::drop_older_of(const LinkConnection& connection) {
  std::vector<LinkId> older;
  for (const auto& [link, other] : connections_)
    if (other.get() != &connection && other->up() && other->dialled() == connection.dialled() &&
        same_party(other->peer(), connection.peer()))
      older.push_back(link);
  for (const LinkId link : older) drop(link, "replaced by a newer connection of the same peer");
}

void LinkLoop::drop(LinkId link, const std::string& reason) {
  const auto at = connections_.find(link);
  CHECK(at != connections_.end()) << "link " << link << " is dropped twice";
  const std::unique_ptr<LinkConnection> connection = std::move(at->second);
  connections_.erase(at);
  if (connection->dialled()) dialer_.ended(connection->address(), link, now_us_, reason);
  if (!connection->up()) {
    if (!connection->dialled()) log_info("link_refused", {{"link", link}, {"reason", reason}});
    return;
  }
  connection->lease()->store(0);  // a holder that still has it starts nothing more
  {
    std::lock_guard lock(mutex_);
    leases_.erase(link);
  }
  log_info("link_down",
           {{"link", link}, {"peer", connection->peer().worker_id}, {"reason", reason}});
  sink_(LinkDown{link, reason});
}

void LinkLoop::flush(LinkId link) {
  LinkConnection* connection = find(link);
  if (connection == nullptr) return;
  if (const Status status = connection->flush(); !status.ok()) {
    drop(link, status.message());
    return;
  }
  const bool writes = connection->wants_write();
  if (writes == connection->write_watched) return;
  connection->write_watched = writes;
  watch(connection->fd(), link, interest(writes), EPOLL_CTL_MOD);
}

}  // namespace baton
