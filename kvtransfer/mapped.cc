#include "kvtransfer/mapped.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "kvtransfer/mapped_route.h"
#include "kvtransfer/unix_socket.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 4096;
constexpr int64_t kAcceptPauseMs = 100;

MoverEvent peer_dead(LinkId link) {
  return {.kind = MoverEvent::Kind::kPeerDead, .link = link, .transport = "mapped"};
}

}  // namespace

// One peer's conversation, D's side.
struct MappedTransport::Connection {
  ScopedFd socket;
  LinkId link = 0;
  bool known = false;  // it has shown the nonce of `link`
  bool welcomed = false;
  bool serving = false;  // it has all slabs
  HandoffMemory::Created scratch;
  PollLoop::Watch timeout;  // for the hello; gone once it has come
  PollLoop::Watch watch;
};

MappedTransport::MappedTransport(const TransportContext& context)
    : context_(context),
      socket_name_("baton-" + to_hex(random_nonce())),
      peers_(context.loop, [report = context.report](LinkId link) { report(peer_dead(link)); }) {
  Result<ScopedFd> listener = listen_unix(socket_name_);
  if (!listener.ok()) throw ConfigError("kvtransfer: mapped: " + listener.status().message());
  listener_ = std::move(*listener);
  accept_watch_ = context_.loop.watch(listener_.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
}

MappedTransport::~MappedTransport() = default;

void MappedTransport::forget(LinkId link) {
  std::erase_if(connections_, [link](const auto& entry) {
    return entry.second->welcomed && entry.second->link == link;
  });
}

void MappedTransport::on_accept() {
  ScopedFd socket = accept_unix(listener_.get());
  if (!socket.valid() && errno != EAGAIN) {
    // Out of descriptors: the one who waits would keep us awake without end.
    accept_watch_.set_events(0);
    accept_pause_ =
        context_.loop.after_ms(kAcceptPauseMs, [this] { accept_watch_.set_events(EPOLLIN); });
  }
  if (!socket.valid() || connections_.size() >= kConnectionsMax) return;
  const uint64_t id = next_id_++;
  auto connection = std::make_unique<Connection>();
  connection->socket = std::move(socket);
  connection->watch = context_.loop.watch(connection->socket.get(), EPOLLIN,
                                          [this, id](uint32_t) { on_message(id); });
  connection->timeout =
      context_.loop.after_ms(context_.attach_timeout_ms, [this, id] { connections_.erase(id); });
  connections_[id] = std::move(connection);
}

void MappedTransport::on_message(uint64_t id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const Status status = answer(*it->second);
  if (status.ok()) return;
  // Strangers leave no trace; a peer that has shown its nonce and leaves later is on its link's
  // log.
  if (it->second->known && !it->second->serving) {
    log_warn("mapped_refused", {{"link", it->second->link}, {"reason", status.message()}});
  }
  connections_.erase(it);
}

Status MappedTransport::answer(Connection& connection) {
  Result<UnixMessage> message = receive_message(connection.socket.get());
  if (!message.ok()) return message.status();
  WireReader in(message->bytes);
  MappedKind kind{};
  if (!in.get(kind)) return invalid_argument("mapped: empty message");
  if (kind == MappedKind::kHello && !connection.welcomed)
    return welcome(connection, std::move(*message));
  if (!connection.welcomed) return invalid_argument("mapped: no hello");

  Nonce challenge{};
  uint32_t group = 0;
  uint32_t first = 0;
  if (kind == MappedKind::kCheck && in.get(challenge)) return check(connection, challenge);
  if (kind == MappedKind::kWant && in.get(group) && in.get(first))
    return send_slabs(connection, group, first);
  if (kind == MappedKind::kReady) {
    connection.scratch = {};
    connection.serving = true;
    return {};
  }
  return invalid_argument("mapped: malformed message");
}

Status MappedTransport::welcome(Connection& connection, UnixMessage message) {
  WireReader in(message.bytes);
  MappedKind kind{};
  uint16_t version = 0;
  Nonce nonce{};
  if (!in.get(kind) || !in.get(version) || version != kMappedVersion || !in.get(nonce) ||
      message.fds.size() != 1) {
    return invalid_argument("mapped: malformed hello");
  }
  const std::optional<OfferBook::Found> found = context_.offers.find(nonce);
  if (!found) return invalid_argument("mapped: unknown nonce");
  connection.known = true;
  connection.link = found->link;
  Status watched =
      peers_.add(found->link, std::move(message.fds[0]), peer_pid(connection.socket.get()));
  if (!watched.ok()) return watched;
  Result<HandoffMemory::Created> scratch = context_.memory.create(kScratchBytes);
  if (!scratch.ok()) return scratch.status();
  const Nonce& proof = found->keys.proof;
  const Status proven = context_.memory.write(scratch->memory->data(), proof.data(), proof.size());
  if (!proven.ok()) return proven;
  connection.welcomed = true;
  connection.scratch = std::move(*scratch);
  connection.timeout.reset();
  WireWriter out;
  out.put(MappedKind::kWelcome);
  out.put(context_.memory.kind());
  return send_message(connection.socket.get(), out.take(), {connection.scratch.fd.get()});
}

Status MappedTransport::check(Connection& connection, const Nonce& challenge) {
  if (connection.scratch.memory == nullptr) return invalid_argument("mapped: no scratch memory");
  Nonce seen{};
  const Status read = context_.memory.read(
      seen.data(), connection.scratch.memory->data() + kScratchChallengeAt, seen.size());
  if (!read.ok()) return read;
  if (seen != challenge) {
    return invalid_argument("mapped: the peer's store is not in our memory");
  }
  WireWriter out;
  out.put(MappedKind::kChecked);
  return send_message(connection.socket.get(), out.take(), {});
}

Status MappedTransport::send_slabs(Connection& connection, uint32_t group, uint32_t first) {
  if (group >= context_.pools.size()) return invalid_argument("mapped: no such kv_group");
  const std::vector<Slab>& slabs = context_.pools[group]->slabs();
  if (first >= slabs.size()) return invalid_argument("mapped: no such slab");
  std::vector<int> fds;
  for (size_t i = first; i < slabs.size() && fds.size() < kMessageFdsMax; ++i)
    fds.push_back(slabs[i].fd.get());
  WireWriter out;
  out.put(MappedKind::kSlabs);
  out.put(group);
  out.put(first);
  return send_message(connection.socket.get(), out.take(), fds);
}

Result<std::unique_ptr<Route>> MappedTransport::connect(LinkId link, const Offer& offer,
                                                        const std::string& address,
                                                        RouteOwner& owner) {
  return MappedRoute::connect(context_, link, offer, address, owner);
}

}  // namespace baton
