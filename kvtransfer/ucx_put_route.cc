#include "kvtransfer/ucx_put_route.h"

#include <poll.h>

#include <algorithm>

#include "base/log.h"

namespace baton {

Result<std::unique_ptr<Route>> UcxPutRoute::connect(UcxPutTransport& transport, LinkId link,
                                                    const Offer& offer,
                                                    const std::string& worker_address,
                                                    RouteOwner& owner) {
  std::unique_ptr<UcxPutRoute> route(new UcxPutRoute(transport, link, offer, owner));
  UcxPutRoute* const self = route.get();
  Result<std::unique_ptr<UcxEndpoint>> endpoint =
      UcxEndpoint::connect(*transport.pushing_, worker_address,
                           [self](const std::string& reason) { self->fail(reason); });
  if (!endpoint.ok()) return endpoint.status();
  route->endpoint_ = std::move(*endpoint);
  // Not from inside Transport::connect: a failure is the owner's to hear later.
  route->timeout_ = transport.context_.loop.after_ms(0, [self] { self->send_hello(); });
  return std::unique_ptr<Route>(std::move(route));
}

UcxPutRoute::UcxPutRoute(UcxPutTransport& transport, LinkId link, const Offer& offer,
                         RouteOwner& owner)
    : transport_(transport),
      link_(link),
      keys_(offer.keys),
      pools_(offer.pools),
      owner_(owner),
      id_(transport.next_route_++) {
  transport_.routes_[id_] = this;
}

UcxPutRoute::~UcxPutRoute() {
  state_ = State::kBroken;
  const Stopwatch waited;
  while (puts_under_way() && waited.elapsed_us() < kDrainMs * 1e3) {
    if (transport_.pushing_->progress()) continue;
    poll(nullptr, 0, 1);
  }
  close();
  transport_.routes_.erase(id_);
}

// A copy engine goes on with what it has been given whatever becomes of the endpoint, so puts under
// way are waited for first; what is left after that is of a NIC, or of UCX itself, and ends with
// it.
void UcxPutRoute::close() {
  if (!puts_under_way()) {
    remote_.clear();
    remote_scratch_.reset();
  }
  endpoint_.reset();
  *self_ = nullptr;
  remote_.clear();
  remote_scratch_.reset();
}

void UcxPutRoute::fail(const std::string& reason) {
  if (state_ == State::kDraining || state_ == State::kBroken) return;
  state_ = State::kDraining;
  broken_reason_ = reason;
  waiting_.clear();
  timeout_ = transport_.context_.loop.after_ms(kDrainMs, [this] {
    log_warn("ucx_puts_do_not_end", {{"link", link_}, {"puts", puts_open_}});
    timeout_.reset();
    close();
    puts_open_ = 0;
    flush_open_ = false;
  });
}

bool UcxPutRoute::end() {
  if (state_ == State::kBroken || (state_ != State::kDraining && !puts_under_way())) return true;
  fail("the link is gone");
  return false;
}

bool UcxPutRoute::turn() {
  while (state_ == State::kReady && !waiting_.empty() &&
         waiting_.front().mark <= transport_.passed_.load() &&
         posted_.size() + flushing_.size() < kPutsMax) {
    const Slice slice = waiting_.front().slice;
    waiting_.pop_front();
    put_slice(slice);
  }
  if (state_ < State::kDraining && unflushed_ && !flush_open_) flush();
  if (state_ == State::kDraining && !puts_under_way()) {
    timeout_.reset();
    close();
    state_ = State::kBroken;
    told_ = true;
    owner_.route_broken(link_, unavailable(broken_reason_));
  }
  return std::exchange(told_, false);
}

// ---- slices ----

bool UcxPutRoute::start(const Slice& slice) {
  const int64_t mark = slice.after == nullptr ? 0 : transport_.mark_behind(slice.after);
  waiting_.push_back({slice, mark});
  return false;
}

void UcxPutRoute::put_slice(const Slice& slice) {
  const PoolGeometry& pool = pools_[static_cast<size_t>(slice.group)];
  const UcxRemoteMemory& slab =
      *remote_[static_cast<size_t>(slice.group)]
              [static_cast<size_t>(slice.dst_page) / static_cast<size_t>(pool.pages_per_slab)];
  const int64_t in_slab = slice.dst_page % pool.pages_per_slab * pool.page_bytes + slice.offset;
  posted_.push_back(slice.transfer);
  put(transport_.source_of(slice), slice.src, slice.bytes, slab,
      slab.address() + static_cast<uint64_t>(in_slab));
}

void UcxPutRoute::put(const UcxMemory& from, const std::byte* src, int64_t bytes,
                      const UcxRemoteMemory& into, uint64_t to) {
  unflushed_ = true;
  const Result<bool> put =
      endpoint_->put(from, src, bytes, into, to, [self = self_](const Status& status) {
        if (*self != nullptr) (*self)->on_put(status);
      });
  if (!put.ok()) return fail(put.status().message());
  if (!*put) ++puts_open_;
}

void UcxPutRoute::on_put(const Status& status) {
  --puts_open_;
  if (!status.ok()) fail("put: " + status.message());
}

// One at a time, behind all that has been put: what is put meanwhile is the next one's.
void UcxPutRoute::flush() {
  unflushed_ = false;
  flushing_.swap(posted_);
  const Result<bool> flushed = endpoint_->flush([self = self_](const Status& status) {
    if (*self != nullptr) (*self)->on_flushed(status);
  });
  if (!flushed.ok()) return fail(flushed.status().message());
  flush_open_ = true;
  if (*flushed) on_flushed({});
}

void UcxPutRoute::on_flushed(const Status& status) {
  flush_open_ = false;
  if (!status.ok()) return fail("flush: " + status.message());
  if (state_ >= State::kDraining) return;
  told_ = true;
  if (state_ != State::kReady) return on_probe_flushed();
  for (const TransferId transfer : flushing_) owner_.slice_done(link_, transfer);
  flushing_.clear();
}

// ---- the conversation ----

void UcxPutRoute::say(UcxPutMessage message, std::string header) {
  endpoint_->send_small(message, std::move(header));
}

void UcxPutRoute::send_hello() {
  WireWriter out;
  out.put(kUcxPutVersion);
  out.put(keys_.connect);
  out.put(id_);
  out.put_string(transport_.boot_id_);
  hello_ = out.take();
  timeout_ = transport_.context_.loop.after_ms(transport_.context_.attach_timeout_ms, [this] {
    fail(state_ == State::kChallenging ? "UCX does not reach the peer's memory"
                                       : "no answer from the peer");
  });
  const Result<bool> sent =
      endpoint_->send(kPutHello, hello_, transport_.pushing_->address(), [] {});
  if (!sent.ok()) fail(sent.status().message());
}

void UcxPutRoute::on_message(uint16_t message, WireReader& in, std::string_view payload) {
  Nonce proof{};
  if (state_ >= State::kDraining || !in.get(proof) || proof != keys_.proof) return;
  if (message == kPutWelcome && state_ == State::kHello) return on_welcome(in, payload);
  if (message == kPutChecked && state_ == State::kChecking) {
    state_ = State::kPinging;
    return probe(kUcxSlotBytes, 1);
  }
  fail(message == kPutGoodbye ? "the peer has closed the connection" : "unexpected message");
}

void UcxPutRoute::on_welcome(WireReader& in, std::string_view payload) {
  WireReader memory(payload);
  Status status = invalid_argument("malformed welcome");
  if (in.get(connection_) && in.at_end()) status = take_memory(memory);
  if (status.ok()) status = challenge();
  if (!status.ok()) fail(status.message());
}

Status UcxPutRoute::take_memory(WireReader& in) {
  const Status malformed = invalid_argument("malformed welcome");
  const auto take = [&](std::unique_ptr<UcxRemoteMemory>& taken) -> Status {
    Region region;
    if (!in.get(region.address) || !in.get_string(region.key)) return malformed;
    Result<std::unique_ptr<UcxRemoteMemory>> memory =
        UcxRemoteMemory::make(*endpoint_, region.address, region.key);
    if (!memory.ok()) return memory.status();
    taken = std::move(*memory);
    return {};
  };
  if (!in.get(slot_) || slot_ >= kUcxSlots) return malformed;
  Status status = take(remote_scratch_);
  remote_.resize(pools_.size());
  for (size_t group = 0; status.ok() && group < pools_.size(); ++group) {
    const PoolGeometry& pool = pools_[group];
    const int64_t slabs = (int64_t{pool.num_pages} + pool.pages_per_slab - 1) / pool.pages_per_slab;
    for (int64_t slab = 0; status.ok() && slab < slabs; ++slab)
      status = take(remote_[group].emplace_back());
  }
  if (status.ok() && !in.at_end()) return malformed;
  return status;
}

// D looks for it where we have put it: what we reach is D's memory.
Status UcxPutRoute::challenge() {
  state_ = State::kChallenging;
  challenge_ = random_nonce();
  // Not the slot of that number: a peer of ours may be putting its challenge there.
  const auto at = kUcxSourcesAt + static_cast<int64_t>(id_ % kUcxSlots) * kUcxSlotBytes;
  const Status written = transport_.context_.memory.write(transport_.scratch_->data() + at,
                                                          challenge_.data(), challenge_.size());
  if (written.ok()) put_scratch(at, slot_ * kUcxSlotBytes, sizeof(challenge_));
  return written;
}

// ---- measuring ----

void UcxPutRoute::put_scratch(int64_t from, int64_t to, int64_t bytes) {
  put(*transport_.scratch_source_, transport_.scratch_->data() + from, bytes, *remote_scratch_,
      remote_scratch_->address() + static_cast<uint64_t>(to));
}

void UcxPutRoute::probe(int64_t bytes, int32_t count) {
  stopwatch_ = {};
  for (int32_t i = 0; i < count && state_ < State::kDraining; ++i)
    put_scratch(kUcxProbeAt + i * bytes, kUcxProbeAt + i * bytes, bytes);
}

void UcxPutRoute::on_probe_flushed() {
  const double elapsed_us = stopwatch_.elapsed_us();
  if (state_ == State::kChallenging) {
    state_ = State::kChecking;
    WireWriter out;
    out.put(connection_);
    out.put(keys_.connect);
    out.put(challenge_);
    return say(kPutCheck, out.take());
  }
  if (state_ == State::kPinging) {
    const bool first = pings_left_ == kProbePings;
    measurement_.latency_us = first ? elapsed_us : std::min(measurement_.latency_us, elapsed_us);
    if (--pings_left_ > 0) return probe(kUcxSlotBytes, 1);
    state_ = State::kMeasuring;
    return probe(kProbeSliceBytes, kProbeSlices);
  }
  // The first round finds nothing prepared: UCX makes its events as it needs them.
  measurement_.gbps =
      std::max(measurement_.gbps, gbps_of(kProbeSliceBytes * kProbeSlices, elapsed_us));
  if (--rounds_left_ > 0) return probe(kProbeSliceBytes, kProbeSlices);
  timeout_.reset();
  state_ = State::kReady;
  owner_.route_ready(link_, measurement_);
}

}  // namespace baton
