// P's side of transport "mapped": the conversation that imports the peer's slabs (mapped.h), then
// copies. Handoff thread only.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/mapped.h"
#include "kvtransfer/unix_socket.h"

namespace baton {

class MappedRoute final : public Route {
 public:
  static Result<std::unique_ptr<Route>> connect(const TransportContext& context, LinkId link,
                                                const Offer& offer, const std::string& socket_name,
                                                RouteOwner& owner);

  bool has_room() const override { return ready_ && copies_->has_room(); }
  bool start(const Slice& slice) override;

 private:
  MappedRoute(const TransportContext& context, LinkId link, const Offer& offer, RouteOwner& owner,
              ScopedFd socket);
  void on_message();
  Status advance();
  Status check_scratch(const UnixMessage& message);
  Status take_slabs(UnixMessage message);
  Status want_next_slabs();
  void on_copies_done(int64_t copies);
  size_t slab_count(size_t group) const;
  int64_t slab_bytes(size_t group, size_t slab) const;

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
  ScopedFd socket_;
  PollLoop::Watch timeout_;  // for the whole conversation
  PollLoop::Watch watch_;
};

}  // namespace baton
