#include "kvtransfer/fault_transport.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "kvtransfer/handoff_memory.h"

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
  bool end() override { return inner_->end(); }

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
    if (--in_flight_ > 0) return;
    corrupted_.clear();
    corrupted_elsewhere_.clear();
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
  const std::byte* moved_to_memory(const std::vector<std::byte>& bytes);

  FaultTransport& transport_;
  RouteOwner& owner_;
  const LinkId link_;
  bool broken_ = false;
  int64_t in_flight_ = 0;
  // What slices in flight read instead of their pages; the second in memory_.
  std::vector<std::vector<std::byte>> corrupted_;
  std::vector<std::unique_ptr<SharedMemory>> corrupted_elsewhere_;
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
  const bool spoil = transport_.draw(plan.corrupt_share) && slice.after == nullptr;
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
  HandoffMemory* const memory = transport_.memory_;
  std::vector<std::byte>& bytes = corrupted_.emplace_back(static_cast<size_t>(slice.bytes));
  if (memory == nullptr) {
    std::copy_n(slice.src, slice.bytes, bytes.begin());
  } else {
    const Status read = memory->read(bytes.data(), slice.src, slice.bytes);
    CHECK(read.ok()) << read.message();
  }
  const uint64_t bit = transport_.random_() % (bytes.size() * 8);
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  Slice spoiled = slice;
  spoiled.src = memory == nullptr ? bytes.data() : moved_to_memory(bytes);
  return spoiled;
}

const std::byte* FaultTransport::FaultRoute::moved_to_memory(const std::vector<std::byte>& bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  Result<HandoffMemory::Created> created = transport_.memory_->create(size);
  CHECK(created.ok()) << created.status().message();
  std::byte* const to = created->memory->data();
  const Status written = transport_.memory_->write(to, bytes.data(), size);
  CHECK(written.ok()) << written.message();
  corrupted_elsewhere_.push_back(std::move(created->memory));
  return to;
}

FaultTransport::FaultTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan,
                               PollLoop* loop, HandoffMemory* memory)
    : inner_(std::move(inner)), plan_(plan), loop_(loop), memory_(memory), random_(plan.seed) {
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
