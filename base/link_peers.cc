// The part of LinkLoop about peers: connections come, prove themselves, and go.
#include <sys/epoll.h>

#include <algorithm>

#include "base/link_loop.h"
#include "base/log.h"

namespace baton {
namespace {

constexpr int64_t kListenerRestUs = 100'000;

constexpr int64_t kRefusalRepeatUs = 60'000'000;
constexpr size_t kRefusalsMax = 64;

const char* failure_label(Code code) {
  switch (code) {
    case Code::kUnauthenticated:
      return "unauthenticated";
    case Code::kInvalidArgument:
      return "refused";
    case Code::kDeadlineExceeded:
      return "timeout";
    case Code::kUnavailable:
      return "lost";
    default:
      return "other";
  }
}

uint32_t interest(bool writes) {
  return writes ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

// Workers are known by their name, so that a restarted one replaces what it was; routers may share
// a name.
bool same_party(const PeerInfo& a, const PeerInfo& b) {
  return a.worker_id == b.worker_id && (a.role != Role::kRouter || a.epoch == b.epoch);
}

// A pair has one link in each direction of dialling; a second one means that the peer has come
// anew. With another epoch it is another process, and nothing of the one before is left.
bool replaces(const LinkConnection& now, const LinkConnection& before) {
  return same_party(now.peer(), before.peer()) &&
         (now.dialled() == before.dialled() || now.peer().epoch != before.peer().epoch);
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
  if (!credentials_->has_token() && !is_loopback(target))
    return dialer_.ended(address, LinkDialer::kNoLink, now_us_,
                         "link.token_file: got none, want one beyond loopback");
  Result<ScopedFd> socket = connect_tcp(target);
  if (!socket.ok())
    return dialer_.ended(address, LinkDialer::kNoLink, now_us_, socket.status().message());
  begin(std::move(*socket), Hello::Side::kDialer, address);
}

void LinkLoop::begin(ScopedFd socket, Hello::Side side, const std::string& address) {
  const LinkId link = next_link_++;
  const std::shared_ptr<const Credentials> credentials = credentials_->current();
  auto connection = std::make_unique<LinkConnection>(
      link, credentials->open(std::move(socket), side),
      Hello(side, self_, config_.lease_ms, credentials->tokens, random_hello_nonce()), address,
      config_, now_us_);
  next_tick_us_ = std::min(next_tick_us_, connection->next_tick_us());
  const bool writes = connection->wants_write();
  connection->write_watched = writes;
  watch(connection->fd(), link, interest(writes), EPOLL_CTL_ADD);
  if (side == Hello::Side::kDialer) dialer_.started(address, link);
  connections_.emplace(link, std::move(connection));
}

void LinkLoop::serve(LinkId link) {
  if (LinkConnection* connection = find(link)) connection->receive(now_us_);
  look_at_clock();  // the process may have been stopped since the last look, just before it read
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
      close(*connection, std::get<Status>(event));
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

void LinkLoop::drop_older_of(const LinkConnection& connection) {
  std::vector<LinkId> older;
  for (const auto& [link, other] : connections_)
    if (other.get() != &connection && other->up() && replaces(connection, *other))
      older.push_back(link);
  for (const LinkId link : older)
    drop(link, unavailable("replaced by a newer connection of the same peer"));
}

// What waits to be said (a refusal, a last message) goes out as far as the socket takes it.
void LinkLoop::close(LinkConnection& connection, const Status& reason) {
  [[maybe_unused]] const Status flushed = connection.flush();
  drop(connection.id(), reason);
}

void LinkLoop::drop(LinkId link, const Status& reason) {
  const auto at = connections_.find(link);
  CHECK(at != connections_.end()) << "link " << link << " is dropped twice";
  const std::unique_ptr<LinkConnection> connection = std::move(at->second);
  connections_.erase(at);
  stats_.bytes_in += connection->bytes_in();
  stats_.bytes_out += connection->bytes_out();
  next_tick_us_ = now_us_;  // publishes
  if (connection->dialled()) dialer_.ended(connection->address(), link, now_us_, reason.message());
  if (!connection->up()) return count_failure(*connection, reason);
  connection->lease()->store(0);  // a holder that still has it starts nothing more
  {
    std::lock_guard lock(mutex_);
    leases_.erase(link);
  }
  log_info("link_down",
           {{"link", link}, {"peer", connection->peer().worker_id}, {"reason", reason.message()}});
  sink_(LinkDown{link, reason.message()});
}

// The dialer tells of its own failures. A peer that comes again and again is told of now and then.
void LinkLoop::count_failure(const LinkConnection& connection, const Status& reason) {
  ++stats_.handshake_failures[failure_label(reason.code())];
  if (connection.dialled()) return;
  if (refusals_told_.size() > kRefusalsMax) refusals_told_.clear();
  const auto [told, first] = refusals_told_.try_emplace(reason.message(), now_us_);
  if (!first && now_us_ - told->second < kRefusalRepeatUs) return;
  told->second = now_us_;
  log_warn("link_refused", {{"from", peer_address(connection.fd())}, {"reason", reason.message()}});
}

void LinkLoop::flush(LinkId link) {
  LinkConnection* connection = find(link);
  if (connection == nullptr) return;
  if (const Status status = connection->flush(); !status.ok()) {
    drop(link, status);
    return;
  }
  const bool writes = connection->wants_write();
  if (writes == connection->write_watched) return;
  connection->write_watched = writes;
  watch(connection->fd(), link, interest(writes), EPOLL_CTL_MOD);
}

}  // namespace baton
