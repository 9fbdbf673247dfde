#include "kvtransfer/death_notes.h"

#include <sys/epoll.h>

#include <cerrno>

#include "base/log.h"
#include "kvtransfer/unix_socket.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 256;
constexpr int64_t kAcceptPauseMs = 100;

}  // namespace

DeathNotes::DeathNotes(PollLoop& loop, const OfferBook& offers, PeerWatch::OnDead on_dead)
    : loop_(loop),
      offers_(offers),
      socket_name_("baton-" + to_hex(random_nonce())),
      peers_(loop, std::move(on_dead)) {
  Result<ScopedFd> listener = listen_unix(socket_name_);
  if (!listener.ok()) throw ConfigError("kvtransfer: " + listener.status().message());
  listener_ = std::move(*listener);
  accept_watch_ = loop.watch(listener_.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
}

void DeathNotes::on_accept() {
  ScopedFd socket = accept_unix(listener_.get());
  if (!socket.valid() && errno != EAGAIN) {
    // Out of descriptors: the one who waits would keep us awake without end.
    accept_watch_.set_events(0);
    accept_pause_ = loop_.after_ms(kAcceptPauseMs, [this] { accept_watch_.set_events(EPOLLIN); });
  }
  if (!socket.valid()) return;
  // Strangers that say nothing make room for others; a peer's note has come with its connection.
  if (connections_.size() >= kConnectionsMax) connections_.erase(connections_.begin());
  const int32_t id = next_id_++;
  Connection& connection = connections_[id];
  connection.socket = std::move(socket);
  connection.watch =
      loop_.watch(connection.socket.get(), EPOLLIN, [this, id](uint32_t) { on_message(id); });
}

void DeathNotes::on_message(int32_t id) {
  auto connection = connections_.extract(id);
  if (connection.empty()) return;
  const Status status = take(connection.mapped().socket.get());
  if (!status.ok()) log_warn("death_note_refused", {{"reason", status.message()}});
}

Status DeathNotes::take(int socket) {
  Result<UnixMessage> message = receive_message(socket);
  if (!message.ok()) return message.status();
  Nonce nonce{};
  WireReader in(message->bytes);
  if (!in.get(nonce) || !in.at_end() || message->fds.size() != 1)
    return invalid_argument("malformed");
  const std::optional<OfferBook::Found> found = offers_.find(nonce);
  if (!found) return invalid_argument("unknown nonce");
  const Status watched = peers_.add(found->link, std::move(message->fds[0]), peer_pid(socket));
  if (watched.ok()) links_.insert(found->link);
  return watched;
}

Status DeathNotes::leave(const std::string& socket_name, const Nonce& connect) {
  const Result<ScopedFd> pidfd = own_pidfd();
  if (!pidfd.ok()) return pidfd.status();
  const Result<ScopedFd> socket = connect_unix(socket_name);
  if (!socket.ok()) return socket.status();
  WireWriter out;
  out.put(connect);
  return send_message(socket->get(), out.take(), {pidfd->get()});
}

}  // namespace baton
