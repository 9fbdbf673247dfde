// P's side of transport "mapped": the conversation that imports the peer's slabs (mapped.h), then
// memcpy. Handoff thread only.
#pragma once

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

  bool has_room() const override { return ready_; }
  bool start(const Slice& slice) override;

 private:
  MappedRoute(const TransportContext& context, LinkId link, const Offer& offer, RouteOwner& owner,
              ScopedFd socket);
  void on_message();
  Status advance();
  Status check_scratch(const UnixMessage& message);
  Status take_slabs(UnixMessage message);
  Status want_next_slabs();
  Measurement measure() const;
  size_t slab_count(size_t group) const;
  int64_t slab_bytes(size_t group, size_t slab) const;

  const LinkId link_;
  const OfferKeys keys_;
  const std::vector<PoolGeometry> pools_;
  RouteOwner& owner_;
  bool ready_ = false;
  MappedKind awaited_ = MappedKind::kWelcome;
  SharedMapping scratch_;
  std::vector<std::vector<SharedMapping>> slabs_;  // by kv_group; the ones mapped so far
  ScopedFd socket_;
  PollLoop::Watch timeout_;  // for the whole conversation
  PollLoop::Watch watch_;
};

}  // namespace baton
