#include "kvtransfer/fault_transport.h"

#include <optional>
#include <vector>

#include "base/check.h"

namespace baton {

// Stands between the inner route and its owner in both directions.
class FaultTransport::FaultRoute final : public Route, public RouteOwner {
 public:
  FaultRoute(FaultTransport& transport, RouteOwner& owner, LinkId link)
      : transport_(transport), owner_(owner), link_(link) {}

  Status connect(const Offer& offer, const std::string& address) {
    Result<std::unique_ptr<Route>> inner = transport_.inner_->connect(link_, offer, address, *this);
    if (inner.ok()) inner_ = std::move(*inner);
    return inner.status();
  }

  bool has_room() const override { return !broken_ && !held_ && inner_->has_room(); }
  bool start(const Slice& slice) override;

  // RouteOwner, for the inner route
  void route_ready(LinkId link, const Measurement& measurement) override {
    owner_.route_ready(link, measurement);
  }
  void slice_done(LinkId link, TransferId transfer) override {
    end_one();
    owner_.slice_done(link, transfer);
  }
  void slice_refused(LinkId link, TransferId transfer, const std::string& reason) override {
    end_one();
    owner_.slice_refused(link, transfer, reason);
  }
  void route_broken(LinkId link, const Status& reason) override {
    owner_.route_broken(link, reason);
  }

 private:
  bool forward(const Slice& slice) {
    ++in_flight_;
    const bool completed = inner_->start(slice);
    if (completed) end_one();
    return completed;
  }
  void end_one() {
    if (--in_flight_ == 0) corrupted_.clear();
  }
  void hold(const Slice& slice) {
    held_ = slice;
    timer_ = transport_.loop_->after_ms(transport_.plan_.delay_ms, [this] { release(); });
  }
  void release() {
    const Slice slice = *std::exchange(held_, std::nullopt);
    if (!inner_->has_room()) return hold(slice);
    if (forward(slice)) owner_.slice_done(link_, slice.transfer);
  }
  Slice corrupt(const Slice& slice);

  FaultTransport& transport_;
  RouteOwner& owner_;
  const LinkId link_;
  bool broken_ = false;
  int64_t in_flight_ = 0;
  std::vector<std::vector<std::byte>>
      corrupted_;  // what slices in flight read instead of their pages
  std::optional<Slice> held_;
  PollLoop::Watch timer_;
  std::unique_ptr<Route> inner_;
};

bool FaultTransport::FaultRoute::start(const Slice& slice) {
  const FaultPlan& plan = transport_.plan_;
  FaultCounts& counts = transport_.counts_;
  if (transport_.draw(plan.break_share)) {
    ++counts.broken;
    broken_ = true;
    owner_.route_broken(link_, unavailable("injected: the connection is lost"));
    return false;
  }
  if (transport_.draw(plan.refuse_share)) {
    ++counts.refused;
    owner_.slice_refused(link_, slice.transfer, "injected: refused");
    return false;
  }
  const bool spoil = transport_.draw(plan.corrupt_share);
  const Slice sent = spoil ? corrupt(slice) : slice;
  if (transport_.draw(plan.delay_share)) {
    ++counts.delayed;
    hold(sent);
    return false;
  }
  return forward(sent);
}

Slice FaultTransport::FaultRoute::corrupt(const Slice& slice) {
  ++transport_.counts_.corrupted;
  std::vector<std::byte>& bytes = corrupted_.emplace_back(slice.src, slice.src + slice.bytes);
  const uint64_t bit = transport_.random_() % (bytes.size() * 8);
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  Slice spoiled = slice;
  spoiled.src = bytes.data();
  return spoiled;
}

FaultTransport::FaultTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan,
                               PollLoop* loop)
    : inner_(std::move(inner)), plan_(plan), loop_(loop), random_(plan.seed) {
  CHECK(loop_ != nullptr || plan_.delay_share == 0) << "delays need a loop with timers";
}

FaultTransport::~FaultTransport() = default;

Result<std::unique_ptr<Route>> FaultTransport::connect(LinkId link, const Offer& offer,
                                                       const std::string& address,
                                                       RouteOwner& owner) {
  if (draw(plan_.connect_failure_share)) {
    ++counts_.connects_failed;
    return unavailable("injected: cannot connect");
  }
  auto route = std::make_unique<FaultRoute>(*this, owner, link);
  const Status connected = route->connect(offer, address);
  if (!connected.ok()) return connected;
  return std::unique_ptr<Route>(std::move(route));
}

}  // namespace baton
