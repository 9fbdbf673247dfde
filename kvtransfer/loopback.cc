#include "kvtransfer/loopback.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace baton {

// One link to a peer. What really happens to the peer is asked for at every step: it may have died
// or forgotten us meanwhile.
class LoopbackMover::LoopbackRoute final : public Route {
 public:
  LoopbackRoute(LoopbackTransport& transport, LoopbackFabric& fabric, LinkId link, uint64_t peer,
                const Offer& offer, RouteOwner& owner);
  ~LoopbackRoute() override;

  bool has_room() const override { return state_ == State::kReady && !in_flight_; }
  bool start(const Slice& slice) override;
  // Ends the copy in flight, or lets the connection come about or break. False: nothing to do.
  bool advance();

 private:
  enum class State : uint8_t { kConnecting, kReady, kBroken };
  void break_off(const std::string& reason) {
    state_ = State::kBroken;
    owner_.route_broken(link_, unavailable(reason));
  }
  GrantBoard::Verdict store(int64_t from, int64_t to);
  bool end_copy();

  LoopbackTransport& transport_;
  LoopbackFabric& fabric_;
  const LinkId link_;
  const uint64_t peer_;
  const Nonce nonce_;
  RouteOwner& owner_;
  LinkId peer_link_ = 0;
  State state_ = State::kConnecting;
  std::optional<Slice> in_flight_;
  GrantBoard::Verdict verdict_ = GrantBoard::Verdict::kStored;  // of its first half
};

class LoopbackMover::LoopbackTransport final : public Transport {
 public:
  struct Peer {
    uint64_t instance = 0;
    LinkId link = 0;  // the peer's number
  };

  LoopbackTransport(LoopbackFabric& fabric, uint64_t instance, bool stores_ourselves)
      : fabric_(fabric), instance_(instance), stores_ourselves_(stores_ourselves) {}
  const char* name() const override { return "loopback"; }
  bool stores_ourselves() const override { return stores_ourselves_; }
  std::string endpoint() const override { return std::to_string(instance_); }
  void forget(LinkId) override {}
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override {
    uint64_t peer = 0;
    std::from_chars(address.data(), address.data() + address.size(), peer);
    if (fabric_.find(peer) == nullptr) return unavailable("the peer is dead");
    return std::unique_ptr<Route>(
        std::make_unique<LoopbackRoute>(*this, fabric_, link, peer, offer, owner));
  }

  bool advance() {
    // A route may go away in the middle: ask for the next one by its number.
    for (auto it = routes_.begin(); it != routes_.end();) {
      const LinkId link = it->first;
      if (it->second->advance()) return true;
      it = routes_.upper_bound(link);
    }
    return false;
  }

  std::map<LinkId, LoopbackRoute*> routes_;
  std::vector<Peer> attached_;  // ever
  uint64_t started_ = 0;        // copies

 private:
  LoopbackFabric& fabric_;
  const uint64_t instance_;
  const bool stores_ourselves_;
};

LoopbackMover::LoopbackRoute::LoopbackRoute(LoopbackTransport& transport, LoopbackFabric& fabric,
                                            LinkId link, uint64_t peer, const Offer& offer,
                                            RouteOwner& owner)
    : transport_(transport),
      fabric_(fabric),
      link_(link),
      peer_(peer),
      nonce_(offer.keys.connect),
      owner_(owner) {
  transport_.routes_[link_] = this;
}

LoopbackMover::LoopbackRoute::~LoopbackRoute() {
  transport_.routes_.erase(link_);
}

bool LoopbackMover::LoopbackRoute::start(const Slice& slice) {
  ++transport_.started_;
  in_flight_ = slice;
  verdict_ = store(0, slice.bytes / 2);
  return false;
}

GrantBoard::Verdict LoopbackMover::LoopbackRoute::store(int64_t from, int64_t to) {
  LoopbackMover* const peer = fabric_.find(peer_);
  if (peer == nullptr) return GrantBoard::Verdict::kStored;  // into the memory of a dead process
  const Slice& slice = *in_flight_;
  std::byte* const target = peer->pools_[slice.group]->page(slice.dst_page) + slice.offset;
  const auto copy = [&] {
    std::memcpy(target + from, slice.src + from, static_cast<size_t>(to - from));
  };
  if (peer->options_.stores_ourselves) {
    return peer->grants_.store_if_allowed(peer_link_, slice.slot_gen, slice.group, slice.dst_page,
                                          copy);
  }
  copy();
  return GrantBoard::Verdict::kStored;
}

bool LoopbackMover::LoopbackRoute::end_copy() {
  const GrantBoard::Verdict verdict =
      std::max(verdict_, store(in_flight_->bytes / 2, in_flight_->bytes));
  const TransferId transfer = in_flight_->transfer;
  in_flight_.reset();
  switch (verdict) {
    case GrantBoard::Verdict::kStored:
      owner_.slice_done(link_, transfer);
      break;
    case GrantBoard::Verdict::kGivenUp:
      owner_.slice_refused(link_, transfer, "the peer has given up this grant");
      break;
    case GrantBoard::Verdict::kForbidden:
      break_off("the peer has closed the connection");
      break;
  }
  return true;
}

bool LoopbackMover::LoopbackRoute::advance() {
  if (state_ == State::kBroken) return false;
  if (in_flight_) return end_copy();
  LoopbackMover* const peer = fabric_.find(peer_);
  const std::optional<OfferBook::Found> found =
      peer == nullptr ? std::nullopt : peer->offers_.find(nonce_);
  if (!found) {
    break_off("the peer has closed the connection");
    return true;
  }
  if (state_ == State::kReady) return false;
  state_ = State::kReady;
  peer_link_ = found->link;
  transport_.attached_.push_back({peer_, peer_link_});
  owner_.route_ready(link_, {.gbps = 1, .latency_us = 1});
  return true;
}

// ---- the mover ----

LoopbackMover::LoopbackMover(LoopbackFabric& fabric, const KvTransferConfig& config,
                             const KvLayout& layout, std::vector<PagePool*> pools,
                             const Clock& clock, Sink sink, LoopbackOptions options)
    : fabric_(fabric),
      layout_(layout),
      pools_(std::move(pools)),
      sink_(std::move(sink)),
      instance_(fabric.next_instance_++),
      options_(std::move(options)),
      verifier_(std::make_unique<HostPageHasher>(pools_),
                [this](MoverEvent event) { events_.push_back(std::move(event)); }) {
  auto transport =
      std::make_unique<LoopbackTransport>(fabric, instance_, options_.stores_ourselves);
  transport_ = transport.get();
  decorated_ = std::move(transport);
  if (options_.faults)
    decorated_ = std::make_unique<FaultTransport>(std::move(decorated_), *options_.faults, nullptr);
  pusher_ = std::make_unique<Pusher>(
      config, layout_, pools_, std::vector<Transport*>{decorated_.get()},
      config.digest ? std::make_unique<HostPageHasher>(pools_) : nullptr, clock,
      [this](MoverEvent event) { events_.push_back(std::move(event)); });
  fabric_.movers_[instance_] = this;
}

LoopbackMover::~LoopbackMover() {
  fabric_.movers_.erase(instance_);
}

std::string LoopbackMover::offer(LinkId link) {
  return encode_offer({.keys = offers_.add(link),
                       .pools = geometry_of(pools_),
                       .endpoints = {{transport_->name(), transport_->endpoint()}}});
}

void LoopbackMover::allow(LinkId link, uint64_t slot_gen,
                          const std::vector<std::vector<int32_t>>& pages_per_group) {
  grants_.allow(link, slot_gen, pages_per_group);
}
void LoopbackMover::disallow(uint64_t slot_gen) {
  grants_.disallow(slot_gen);
}
void LoopbackMover::verify(uint64_t slot_gen,
                           const std::vector<std::vector<int32_t>>& pages_per_group,
                           const PagesDigest& want) {
  verifier_.verify(slot_gen, pages_per_group, want);
}
bool LoopbackMover::stores_ourselves(const std::string&) const {
  return options_.stores_ourselves;
}
void LoopbackMover::forget(LinkId link) {
  offers_.remove(link);
}

void LoopbackMover::attach(LinkId link, const std::string& offer, Lease lease) {
  pusher_->attach(link, offer, std::move(lease));
}
void LoopbackMover::detach(LinkId link) {
  pusher_->detach(link);
}
void LoopbackMover::begin(TransferId transfer, LinkId link, uint64_t slot_gen) {
  pusher_->begin(transfer, link, slot_gen);
}
void LoopbackMover::push(const std::vector<PushPage>& pages) {
  pusher_->push_pages(pages);
}
void LoopbackMover::finish(TransferId transfer, uint64_t last_step) {
  pusher_->finish(transfer, last_step);
}
void LoopbackMover::abort(TransferId transfer) {
  pusher_->abort(transfer);
}

void LoopbackMover::layer_written(const StepInput& step, int32_t layer) {
  pusher_->push_layer(step.pushes, layer);
  int32_t last_layer = -1;
  for (const KvGroup& group : layout_.groups)
    last_layer = std::max(last_layer, group.layers.back());
  if (layer == last_layer) pusher_->step_written(step.step);
}

bool LoopbackMover::step() {
  if (stalled_ || killed_) return false;
  const size_t events = events_.size();
  const uint64_t started = transport_->started_;
  const bool advanced = transport_->advance();
  pusher_->pump();
  verifier_.pump();
  return advanced || transport_->started_ != started || events_.size() != events;
}

void LoopbackMover::run_to_idle() {
  while (step()) {
  }
  deliver_events();
}

int LoopbackMover::deliver_events() {
  int delivered = 0;
  while (!events_.empty()) {
    const MoverEvent event = std::move(events_.front());
    events_.pop_front();
    sink_(event);
    ++delivered;
  }
  return delivered;
}

void LoopbackMover::kill() {
  killed_ = true;
  events_.clear();
  fabric_.movers_.erase(instance_);
  if (options_.stores_ourselves) return;
  for (const LoopbackTransport::Peer& peer : transport_->attached_) {
    LoopbackMover* const mover = fabric_.find(peer.instance);
    if (mover == nullptr) continue;
    mover->events_.push_back(
        {.kind = MoverEvent::Kind::kPeerDead, .link = peer.link, .transport = "loopback"});
  }
}

}  // namespace baton
