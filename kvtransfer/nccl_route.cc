#include "kvtransfer/nccl_route.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr int64_t kSlicesMax = 1 << 15;  // not finished: two steps of 8k tokens and some
// Of a batch. Two are in NCCL's hands while the answers to others travel.
constexpr int64_t kBatchBytes = 64 << 20;
constexpr int64_t kPingBytes = 64;
constexpr int32_t kMeasureSlices = 256;  // a batch
constexpr int32_t kMeasureBatches = 4;

}  // namespace

NcclRoute::NcclRoute(const TransportContext& context, std::shared_ptr<const NcclApi> api,
                     int32_t ctas, LinkId link, const Offer& offer,
                     std::vector<SocketAddress> addresses, RouteOwner& owner)
    : context_(context),
      api_(std::move(api)),
      ctas_(ctas),
      link_(link),
      nonce_(offer.keys.connect),
      owner_(owner),
      gate_(context.memory.make_marked_stream([this] {
        ++opened_;
        context_.loop.wake();
      })) {
  hook_ = context.loop.before_sleep([this] { return before_sleep(); });
  dialler_.emplace(context.loop, std::move(addresses), context.attach_timeout_ms,
                   Dialler::Events{.connected =
                                       [this](ScopedFd socket, const std::string& address) {
                                         say_hello(std::move(socket), address);
                                       },
                                   .failed = [this](const Status& reason) { fail(reason); }});
}

bool NcclRoute::has_room() const {
  return state_ == State::kReady && unfinished_ < kSlicesMax;
}

bool NcclRoute::end() {
  fail(unavailable("the link is gone"));
  return ended_;
}

void NcclRoute::fail(const Status& reason) {
  if (state_ == State::kBroken) return;
  state_ = State::kBroken;
  broken_ = reason;
  timeout_.reset();
  dialler_.reset();
  control_.reset();
  if (pair_ != nullptr) return pair_->end();
  ended_ = true;
  owner_.route_broken(link_, broken_);
}

// ---- connecting ----

void NcclRoute::say_hello(ScopedFd socket, const std::string& address) {
  dialler_.reset();
  control_ = std::make_unique<MessageStream>(
      context_.loop, context_.credentials.current()->open(std::move(socket), StreamSide::kDialer),
      [this](std::string_view message) { return on_message(message); },
      [this](const Status& reason) { fail(reason); });
  WireWriter hello;
  hello.put(NcclMessage::kHello);
  hello.put(kNcclMagic);
  hello.put(kNcclWireVersion);
  hello.put(nonce_);
  control_->send(hello.take());
  state_ = State::kHello;
  timeout_ = context_.loop.after_ms(context_.attach_timeout_ms, [this, address] {
    fail(unavailable(address + ": no answer to the hello"));
  });
}

Status NcclRoute::on_message(std::string_view message) {
  WireReader in(message);
  NcclMessage kind{};
  if (!in.get(kind)) return invalid_argument("empty message");
  const bool moving = state_ == State::kMeasuring || state_ == State::kReady;
  if (kind == NcclMessage::kWelcome && state_ == State::kHello) {
    return join();
  }
  if (kind == NcclMessage::kReady && state_ == State::kJoining && !theirs_ready_) {
    theirs_ready_ = true;
    on_joined();
    return {};
  }
  if (kind == NcclMessage::kTaken && moving && answered_ < announced_) return take_answer(in);
  if (kind == NcclMessage::kStored && moving && stored_ < under_way_) {
    ++stored_;
    finish_batches();
    return {};
  }
  const char* const want = state_ == State::kHello     ? "welcome"
                           : state_ == State::kJoining ? "ready, once"
                                                       : "an answer to each batch";
  return invalid_argument("got message " + std::to_string(static_cast<int>(kind)) + ", want " +
                          want);
}

Status NcclRoute::join() {
  Result<HandoffMemory::Created> scratch = context_.memory.create(kProbeSliceBytes);
  if (!scratch.ok()) return scratch.status();
  scratch_ = scratch->memory->data();
  state_ = State::kJoining;
  const int64_t patience_ms = kNcclPatienceTimeouts * context_.attach_timeout_ms;
  pair_ = std::make_unique<NcclPair>(
      api_, context_.memory, context_.loop,
      NcclPair::Spec{
          .rank = NcclRank::kSender, .id = {}, .ctas = ctas_, .end_timeout_ms = patience_ms},
      std::move(scratch->memory),
      NcclPair::Events{.made_id =
                           [this](const NcclId& id) {
                             WireWriter out;
                             out.put(NcclMessage::kJoin);
                             out.put(id);
                             control_->send(out.take());
                           },
                       .ready =
                           [this] {
                             ours_ready_ = true;
                             on_joined();
                           },
                       .moved =
                           [this](int64_t groups) {
                             sent_ += groups;
                             finish_batches();
                           },
                       .broken = [this](const Status& reason) { fail(reason); },
                       .ended =
                           [this] {
                             ended_ = true;
                             owner_.route_broken(link_, broken_);
                           }});
  timeout_ = context_.loop.after_ms(
      patience_ms, [this] { fail(unavailable("the communicator was not made in time")); });
  return {};
}

void NcclRoute::on_joined() {
  if (!ours_ready_ || !theirs_ready_) return;
  state_ = State::kMeasuring;
  timeout_ = context_.loop.after_ms(context_.attach_timeout_ms, [this] {
    fail(unavailable("the measurement has not ended in time"));
  });
  measure_next();
}

// ---- batches ----

bool NcclRoute::start(const Slice& slice) {
  if (slice.after != nullptr && slice.after != waits_for_) {
    close_batch();
    // At once: the event may be recorded again.
    gate_->wait_for(slice.after);
    gate_->mark();
    ++gates_;
    waits_for_ = slice.after;
  }
  if (slice.after != nullptr) gathering_.gate = gates_;
  add(slice);
  return false;
}

void NcclRoute::add(const Slice& slice) {
  const bool full = gathering_.slices.size() == kNcclBatchSlicesMax ||
                    gathering_.bytes + slice.bytes > kBatchBytes;
  if (full && !gathering_.slices.empty()) {
    const int64_t gate = gathering_.gate;
    close_batch();
    if (slice.after != nullptr) gathering_.gate = gate;
  }
  gathering_.slices.push_back(slice);
  gathering_.bytes += slice.bytes;
  ++unfinished_;
}

void NcclRoute::close_batch() {
  if (!gathering_.slices.empty()) batches_.push_back(std::move(gathering_));
  gathering_ = {};
}

bool NcclRoute::before_sleep() {
  if (state_ != State::kMeasuring && state_ != State::kReady) return true;
  close_batch();
  waits_for_ = nullptr;  // it may be recorded again: what comes later waits for it anew
  announce();
  return true;
}

void NcclRoute::announce() {
  while (announced_ < std::min(batches_.size(), kNcclBatchesMax) &&
         batches_[announced_].gate <= opened_) {
    const Batch& batch = batches_[announced_++];
    WireWriter out;
    out.put(NcclMessage::kBatch);
    out.put(static_cast<uint32_t>(batch.slices.size()));
    for (const Slice& slice : batch.slices) {
      out.put(NcclSlice{slice.slot_gen, slice.offset, slice.bytes, slice.group, slice.dst_page});
    }
    control_->send(out.take());
  }
}

// Which slices D takes: those are sent, in the order in which D receives them.
Status NcclRoute::take_answer(WireReader in) {
  Batch& batch = batches_[answered_];
  std::vector<Slice> taken;
  std::vector<NcclMove> moves;
  for (const Slice& slice : batch.slices) {
    uint8_t take = 0;
    if (!in.get(take)) return invalid_argument("malformed answer");
    if (take == 0) {
      --unfinished_;
      owner_.slice_refused(link_, slice.transfer, "the peer has given up this grant");
    } else {
      taken.push_back(slice);
      moves.push_back({const_cast<std::byte*>(slice.src), slice.bytes});
    }
  }
  if (!in.at_end()) return invalid_argument("malformed answer");
  batch.slices = std::move(taken);
  ++answered_;
  if (!moves.empty()) {
    batch.taken = true;
    ++under_way_;
    pair_->move(std::move(moves));
  }
  finish_batches();
  return {};
}

void NcclRoute::finish_batches() {
  while (answered_ > 0) {
    if (batches_.front().taken) {
      if (sent_ == 0 || stored_ == 0) return;
      --sent_;
      --stored_;
      --under_way_;
    }
    const Batch done = std::move(batches_.front());
    batches_.pop_front();
    --announced_;
    --answered_;
    finish(done);
  }
}

void NcclRoute::finish(const Batch& batch) {
  unfinished_ -= std::ssize(batch.slices);
  if (state_ == State::kReady) {
    for (const Slice& slice : batch.slices) owner_.slice_done(link_, slice.transfer);
  } else if (unfinished_ == 0) {
    measure_next();
  }
}

// ---- measuring ----

void NcclRoute::probe(int64_t bytes, int32_t slices, int32_t batches) {
  stopwatch_ = {};
  for (int32_t batch = 0; batch < batches; ++batch) {
    for (int32_t i = 0; i < slices; ++i) {
      add({.group = kNcclProbeGroup,
           .offset = i % kProbeSlices * kProbeSliceBytes,
           .bytes = bytes,
           .src = scratch_});
    }
    close_batch();
  }
}

// One batch that counts nothing, for NCCL connects at the first; short ones; then long ones.
void NcclRoute::measure_next() {
  constexpr size_t kLast = kProbePings + 2;
  const double elapsed_us = stopwatch_.elapsed_us();
  const size_t round = round_++;
  if (round == 0) return probe(kProbeSliceBytes, kProbeSlices, 1);
  if (round > 1 && round < kLast)
    measurement_.latency_us =
        round == 2 ? elapsed_us : std::min(measurement_.latency_us, elapsed_us);
  if (round < kLast - 1) return probe(kPingBytes, 1, 1);
  if (round == kLast - 1) return probe(kProbeSliceBytes, kMeasureSlices, kMeasureBatches);
  measurement_.gbps = gbps_of(kProbeSliceBytes * kMeasureSlices * kMeasureBatches, elapsed_us);
  timeout_.reset();
  WireWriter out;
  out.put(NcclMessage::kMeasured);
  control_->send(out.take());
  state_ = State::kReady;
  owner_.route_ready(link_, measurement_);
}

}  // namespace baton
