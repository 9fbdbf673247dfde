#include "kvtransfer/mapped_route.h"

#include <algorithm>
#include <sstream>

#include "kvtransfer/unix_socket.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

// The addresses of a peer on another host, if its memory can be had from here.
Result<std::vector<SocketAddress>> find_in_fabric(const TransportContext& context,
                                                  const std::string& clique,
                                                  const std::string& addresses) {
  const std::string ours = context.memory.fabric();
  if (clique != ours) {
    return unavailable("the peer's GPU is on another host, in NVLink clique " + clique +
                       ", ours in \"" + ours + "\"");
  }
  if (context.credentials.current()->tls == nullptr)
    return unavailable("fabric handles travel by TLS only, which is not configured here");
  return parse_addresses(addresses);
}

}  // namespace

Result<std::unique_ptr<Route>> MappedRoute::connect(const TransportContext& context, LinkId link,
                                                    const Offer& offer, const std::string& address,
                                                    RouteOwner& owner) {
  std::istringstream words(address);
  std::string socket_name, clique, addresses;
  words >> socket_name >> clique >> addresses;
  Result<ScopedFd> socket = connect_unix(socket_name);
  std::vector<SocketAddress> elsewhere;
  if (!socket.ok()) {
    if (clique.empty()) return socket.status();
    Result<std::vector<SocketAddress>> found = find_in_fabric(context, clique, addresses);
    if (!found.ok()) return found.status();
    elsewhere = std::move(*found);
  }
  std::unique_ptr<MappedRoute> route(new MappedRoute(context, link, offer, owner));
  Status begun;
  if (socket.ok()) {
    begun = route->open(std::move(*socket));
  } else {
    route->dial(std::move(elsewhere));
  }
  if (!begun.ok()) return begun;
  return std::unique_ptr<Route>(std::move(route));
}

MappedRoute::MappedRoute(const TransportContext& context, LinkId link, const Offer& offer,
                         RouteOwner& owner)
    : context_(context),
      memory_(context.memory),
      link_(link),
      keys_(offer.keys),
      pools_(offer.pools),
      owner_(owner),
      slabs_(offer.pools.size()),
      copies_(context.memory.make_queue(context.loop,
                                        [this](int64_t copies) { on_copies_done(copies); })) {}

MappedChannel::Events MappedRoute::events() {
  return {.message = [this](MappedMessage message) { return take(std::move(message)); },
          .closed = [this](const Status& reason) { fail(reason); }};
}

Status MappedRoute::open(ScopedFd socket) {
  const Result<ScopedFd> pidfd = own_pidfd();
  if (!pidfd.ok()) return pidfd.status();
  channel_ = open_unix_channel(context_.loop, std::move(socket), events());
  return say_hello({{.fd = pidfd->get()}});
}

void MappedRoute::dial(std::vector<SocketAddress> addresses) {
  const auto connected = [this](ScopedFd socket, const std::string&) {
    dialler_.reset();
    channel_ = open_fabric_channel(
        context_.loop, context_.credentials.current()->open(std::move(socket), StreamSide::kDialer),
        events());
    (void)say_hello({});  // only queued: what becomes of it is told by the channel
  };
  dialler_.emplace(context_.loop, std::move(addresses), context_.attach_timeout_ms,
                   Dialler::Events{.connected = connected,
                                   .failed = [this](const Status& reason) { fail(reason); }});
}

Status MappedRoute::say_hello(const std::vector<MemoryKeyView>& keys) {
  timeout_ = context_.loop.after_ms(context_.attach_timeout_ms,
                                    [this] { fail(unavailable("no answer from the peer")); });
  WireWriter hello;
  hello.put(MappedKind::kHello);
  hello.put(kMappedVersion);
  hello.put(keys_.connect);
  return channel_->send(hello.take(), keys);
}

void MappedRoute::fail(const Status& reason) {
  ready_ = false;
  timeout_.reset();
  dialler_.reset();
  channel_.reset();
  owner_.route_broken(link_, reason);
}

Status MappedRoute::take(MappedMessage message) {
  MappedKind kind{};
  if (!WireReader(message.bytes).get(kind) || ready_ || kind != awaited_) {
    return invalid_argument("got message " + std::to_string(static_cast<int>(kind)) + ", want " +
                            (ready_ ? "none" : std::to_string(static_cast<int>(awaited_))));
  }
  if (kind == MappedKind::kWelcome) return check_scratch(message);
  if (kind == MappedKind::kChecked) return want_next_slabs();
  return take_slabs(std::move(message));
}

Status MappedRoute::check_scratch(const MappedMessage& message) {
  WireReader in(message.bytes);
  MappedKind message_kind{};
  HandoffMemory::Kind kind{};
  if (!in.get(message_kind) || !in.get(kind) || message.keys.size() != 1) {
    return invalid_argument("welcome without its memory");
  }
  if (kind != memory_.kind()) {
    return unavailable("one side's pages are in host memory, the other's on a GPU");
  }
  Result<std::unique_ptr<SharedMemory>> scratch = memory_.import(message.keys[0], kScratchBytes);
  if (!scratch.ok()) return scratch.status();
  scratch_ = std::move(*scratch);
  Nonce proof{};
  Status moved = memory_.read(proof.data(), scratch_->data(), proof.size());
  if (!moved.ok()) return moved;
  if (proof != keys_.proof) return invalid_argument("this memory is not the peer's");
  const Nonce challenge = random_nonce();
  moved = memory_.write(scratch_->data() + kScratchChallengeAt, challenge.data(), challenge.size());
  if (!moved.ok()) return moved;
  WireWriter out;
  out.put(MappedKind::kCheck);
  out.put(challenge);
  awaited_ = MappedKind::kChecked;
  return channel_->send(out.take(), {});
}

Status MappedRoute::want_next_slabs() {
  for (size_t group = 0; group < pools_.size(); ++group) {
    if (slabs_[group].size() == slab_count(group)) continue;
    WireWriter out;
    out.put(MappedKind::kWant);
    out.put(static_cast<uint32_t>(group));
    out.put(static_cast<uint32_t>(slabs_[group].size()));
    awaited_ = MappedKind::kSlabs;
    return channel_->send(out.take(), {});
  }
  const Result<Measurement> measurement = copies_->measure(scratch_->data() + kScratchProbeAt);
  if (!measurement.ok()) return measurement.status();
  scratch_.reset();
  timeout_.reset();
  ready_ = true;
  owner_.route_ready(link_, *measurement);
  WireWriter out;
  out.put(MappedKind::kReady);
  return channel_->send(out.take(), {});
}

Status MappedRoute::take_slabs(MappedMessage message) {
  WireReader in(message.bytes);
  MappedKind kind{};
  uint32_t group = 0;
  uint32_t first = 0;
  const bool whole = in.get(kind) && in.get(group) && in.get(first);
  if (!whole || group >= slabs_.size() || first != slabs_[group].size() || message.keys.empty()) {
    return invalid_argument("malformed slabs");
  }
  for (const MemoryKey& key : message.keys) {
    const size_t slab = slabs_[group].size();
    if (slab == slab_count(group)) return invalid_argument("more slabs than pages");
    Result<std::unique_ptr<SharedMemory>> mapping = memory_.import(key, slab_bytes(group, slab));
    if (!mapping.ok()) return mapping.status();
    slabs_[group].push_back(std::move(*mapping));
  }
  return want_next_slabs();
}

size_t MappedRoute::slab_count(size_t group) const {
  const PoolGeometry& pool = pools_[group];
  return static_cast<size_t>((int64_t{pool.num_pages} + pool.pages_per_slab - 1) /
                             pool.pages_per_slab);
}

int64_t MappedRoute::slab_bytes(size_t group, size_t slab) const {
  const PoolGeometry& pool = pools_[group];
  const int64_t first_page = static_cast<int64_t>(slab) * pool.pages_per_slab;
  return std::min<int64_t>(pool.pages_per_slab, pool.num_pages - first_page) * pool.page_bytes;
}

bool MappedRoute::start(const Slice& slice) {
  const PoolGeometry& pool = pools_[slice.group];
  const SharedMemory& slab = *slabs_[slice.group][slice.dst_page / pool.pages_per_slab];
  std::byte* const page = slab.data() + slice.dst_page % pool.pages_per_slab * pool.page_bytes;
  if (copies_->copy(page + slice.offset, slice.src, slice.bytes, slice.after)) return true;
  under_way_.push_back(slice.transfer);
  return false;
}

void MappedRoute::on_copies_done(int64_t copies) {
  for (int64_t i = 0; i < copies; ++i) {
    const TransferId transfer = under_way_.front();
    under_way_.pop_front();
    owner_.slice_done(link_, transfer);
  }
}

}  // namespace baton
