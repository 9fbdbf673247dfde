#include "kvtransfer/mapped.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

Result<ScopedFd> make_scratch(const Nonce& proof) {
  ScopedFd fd(memfd_create("baton-scratch", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), kScratchBytes) != 0 ||
      pwrite(fd.get(), proof.data(), proof.size(), 0) != static_cast<ssize_t>(proof.size())) {
    return unavailable(std::string("scratch memory: ") + strerror(errno));
  }
  return fd;
}

}  // namespace

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Result<SharedMapping> SharedMapping::map(int fd, int64_t bytes) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size < bytes) {
    return invalid_argument("shared memory: got " + std::to_string(info.st_size) + " bytes, want " +
                            std::to_string(bytes));
  }
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    return unavailable(std::string("shared memory: mmap: ") + strerror(errno));
  // A child that outlives us would keep a way into the peer's pages.
  madvise(data, static_cast<size_t>(bytes), MADV_DONTFORK);
  SharedMapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  return mapping;
}

// One peer's conversation, D's side.
struct MappedTransport::Connection {
  ScopedFd socket;
  LinkId link = 0;
  bool welcomed = false;
  Nonce proof{};
  ScopedFd scratch;
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
  if (it != connections_.end() && !answer(*it->second).ok()) connections_.erase(it);
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
    connection.scratch.reset();
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
  Status watched =
      peers_.add(found->link, std::move(message.fds[0]), peer_pid(connection.socket.get()));
  if (!watched.ok()) return watched;
  Result<ScopedFd> scratch = make_scratch(found->keys.proof);
  if (!scratch.ok()) return scratch.status();
  connection.welcomed = true;
  connection.link = found->link;
  connection.scratch = std::move(*scratch);
  connection.timeout.reset();
  WireWriter out;
  out.put(MappedKind::kWelcome);
  return send_message(connection.socket.get(), out.take(), {connection.scratch.get()});
}

Status MappedTransport::check(Connection& connection, const Nonce& challenge) {
  Nonce seen{};
  const ssize_t got =
      pread(connection.scratch.get(), seen.data(), seen.size(), kScratchChallengeAt);
  if (got != static_cast<ssize_t>(seen.size()) || seen != challenge) {
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
