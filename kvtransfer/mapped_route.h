// P's side of transport "mapped": the conversation that imports the peer's slabs (mapped.h), then
// copies. Handoff thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvtransfer/dialler.h"
#include "kvtransfer/mapped.h"

namespace baton {

class MappedRoute final : public Route {
 public:
  // `address`: as MappedTransport::endpoint. Over the socket where it can be reached, else over the
  // fabric where both ends are in one.
  static Result<std::unique_ptr<Route>> connect(const TransportContext& context, LinkId link,
                                                const Offer& offer, const std::string& address,
                                                RouteOwner& owner);

  bool has_room() const override { return ready_ && copies_->has_room(); }
  bool start(const Slice& slice) override;

 private:
  MappedRoute(const TransportContext& context, LinkId link, const Offer& offer, RouteOwner& owner);
  MappedChannel::Events events();
  Status open(ScopedFd socket);
  void dial(std::vector<SocketAddress> addresses);
  void fail(const Status& reason);
  Status say_hello(const std::vector<MemoryKeyView>& keys);
  Status take(MappedMessage message);
  Status check_scratch(const MappedMessage& message);
  Status take_slabs(MappedMessage message);
  Status want_next_slabs();
  void on_copies_done(int64_t copies);
  size_t slab_count(size_t group) const;
  int64_t slab_bytes(size_t group, size_t slab) const;

  const TransportContext& context_;
  HandoffMemory& memory_;
  const LinkId link_;
  const OfferKeys keys_;
  const std::vector<PoolGeometry> pools_;
  RouteOwner& owner_;
  bool ready_ = false;
  MappedKind awaited_ = MappedKind::kWelcome;
  std::unique_ptr<SharedMemory> scratch_;
  // By kv_group; the ones mapped so far.
  std::vector<std::vector<std::unique_ptr<SharedMemory>>> slabs_;
  std::deque<TransferId> under_way_;   // of the copies that have not completed, in order
  std::unique_ptr<CopyQueue> copies_;  // after the slabs: it ends before they are unmapped
  std::optional<Dialler> dialler_;     // to another host, until it is connected
  std::unique_ptr<MappedChannel> channel_;
  PollLoop::Watch timeout_;  // for the whole conversation; the dialler has its own
};

}  // namespace baton
