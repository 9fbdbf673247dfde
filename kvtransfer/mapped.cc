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
  LinkId link = 0;
  bool known = false;  // it has shown the nonce of `link`
  bool welcomed = false;
  bool serving = false;  // it has all slabs
  HandoffMemory::Created scratch;
  PollLoop::Watch timeout;  // for the hello; gone once it has come
  std::unique_ptr<MappedChannel> channel;
};

MappedTransport::MappedTransport(const TransportContext& context)
    : context_(context),
      socket_name_("baton-" + to_hex(random_nonce())),
      peers_(context.loop, [report = context.report](LinkId link) { report(peer_dead(link)); }) {
  Result<ScopedFd> listener = listen_unix(socket_name_);
  if (!listener.ok()) throw ConfigError("kvtransfer: mapped: " + listener.status().message());
  listener_ = std::move(*listener);
  accept_watch_ = context_.loop.watch(listener_.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
  if (!has_fabric()) return;
  const auto accept = [this](ScopedFd socket) {
    serve([&](MappedChannel::Events events) {
      return open_fabric_channel(
          context_.loop,
          context_.credentials.current()->open(std::move(socket), StreamSide::kAcceptor),
          std::move(events));
    });
  };
  fabric_listener_ =
      std::make_unique<DataListener>(context_.loop, "mapped", context_.listen_host, accept);
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
  if (!socket.valid()) return;
  serve([&](MappedChannel::Events events) {
    return open_unix_channel(context_.loop, std::move(socket), std::move(events));
  });
}

// Handles are a way into our memory for whoever reads them: never without TLS.
bool MappedTransport::has_fabric() const {
  if (context_.memory.fabric().empty() || context_.credentials.current()->tls == nullptr)
    return false;
  return std::all_of(context_.pools.begin(), context_.pools.end(), [](const PagePool* pool) {
    return std::all_of(pool->slabs().begin(), pool->slabs().end(),
                       [](const Slab& slab) { return slab.fabric_handle.has_value(); });
  });
}

std::string MappedTransport::endpoint() const {
  if (fabric_listener_ == nullptr) return socket_name_;
  return socket_name_ + " " + context_.memory.fabric() + " " + fabric_listener_->endpoint();
}

void MappedTransport::serve(const OpenChannel& open) {
  if (connections_.size() >= kConnectionsMax) return;
  const uint64_t id = next_id_++;
  Connection& connection = *(connections_[id] = std::make_unique<Connection>());
  connection.channel = open(
      {.message = [this, &connection](
                      MappedMessage message) { return answer(connection, std::move(message)); },
       .closed = [this, id](const Status& reason) { on_closed(id, reason); }});
  connection.timeout =
      context_.loop.after_ms(context_.attach_timeout_ms, [this, id] { connections_.erase(id); });
}

void MappedTransport::on_closed(uint64_t id, const Status& reason) {
  const auto it = connections_.find(id);
  // Strangers leave no trace, and the end of a peer that has its slabs is on the link's log.
  if (it->second->known && (!it->second->serving || reason.code() == Code::kInvalidArgument)) {
    log_warn("mapped_refused", {{"link", it->second->link}, {"reason", reason.message()}});
  }
  connections_.erase(it);
}

Status MappedTransport::answer(Connection& connection, MappedMessage message) {
  WireReader in(message.bytes);
  MappedKind kind{};
  if (!in.get(kind)) return invalid_argument("empty message");
  if (kind == MappedKind::kHello && !connection.welcomed)
    return welcome(connection, std::move(message));
  if (!connection.welcomed) return invalid_argument("no hello");

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
  return invalid_argument("malformed message");
}

Status MappedTransport::welcome(Connection& connection, MappedMessage message) {
  WireReader in(message.bytes);
  MappedKind kind{};
  uint16_t version = 0;
  Nonce nonce{};
  const bool crosses_hosts = connection.channel->crosses_hosts();
  if (!in.get(kind) || !in.get(version) || version != kMappedVersion || !in.get(nonce) ||
      message.keys.size() != (crosses_hosts ? 0 : 1)) {
    return invalid_argument("malformed hello");
  }
  const std::optional<OfferBook::Found> found = context_.offers.find(nonce);
  if (!found) return invalid_argument("unknown nonce");
  connection.known = true;
  connection.link = found->link;
  if (!crosses_hosts) {
    const Status watched =
        peers_.add(found->link, std::move(message.keys[0].fd), connection.channel->peer_pid());
    if (!watched.ok()) return watched;
  }
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
  const MemoryKey& key = connection.scratch.key;
  return connection.channel->send(
      out.take(), {{.fd = key.fd.get(), .handle = key.handle ? &*key.handle : nullptr}});
}

Status MappedTransport::check(Connection& connection, const Nonce& challenge) {
  if (connection.scratch.memory == nullptr) return invalid_argument("no scratch memory");
  Nonce seen{};
  const Status read = context_.memory.read(
      seen.data(), connection.scratch.memory->data() + kScratchChallengeAt, seen.size());
  if (!read.ok()) return read;
  if (seen != challenge) {
    return invalid_argument("the peer's store is not in our memory");
  }
  WireWriter out;
  out.put(MappedKind::kChecked);
  return connection.channel->send(out.take(), {});
}

Status MappedTransport::send_slabs(Connection& connection, uint32_t group, uint32_t first) {
  if (group >= context_.pools.size()) return invalid_argument("no such kv_group");
  const std::vector<Slab>& slabs = context_.pools[group]->slabs();
  if (first >= slabs.size()) return invalid_argument("no such slab");
  std::vector<MemoryKeyView> keys;
  for (size_t i = first; i < slabs.size() && keys.size() < kMappedKeysMax; ++i) {
    const auto& handle = slabs[i].fabric_handle;
    keys.push_back({.fd = slabs[i].fd.get(), .handle = handle ? &*handle : nullptr});
  }
  WireWriter out;
  out.put(MappedKind::kSlabs);
  out.put(group);
  out.put(first);
  return connection.channel->send(out.take(), keys);
}

Result<std::unique_ptr<Route>> MappedTransport::connect(LinkId link, const Offer& offer,
                                                        const std::string& address,
                                                        RouteOwner& owner) {
  return MappedRoute::connect(context_, link, offer, address, owner);
}

}  // namespace baton
