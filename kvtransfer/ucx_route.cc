#include "kvtransfer/ucx_route.h"

#include <algorithm>

namespace baton {

Result<std::unique_ptr<Route>> UcxRoute::connect(UcxTransport& transport, LinkId link,
                                                 const Offer& offer,
                                                 const std::string& worker_address,
                                                 RouteOwner& owner) {
  std::unique_ptr<UcxRoute> route(new UcxRoute(transport, link, offer, owner));
  UcxRoute* const self = route.get();
  Result<std::unique_ptr<UcxEndpoint>> endpoint =
      UcxEndpoint::connect(*transport.worker_, worker_address,
                           [self](const std::string& reason) { self->fail(reason); });
  if (!endpoint.ok()) return endpoint.status();
  route->endpoint_ = std::move(*endpoint);
  // Not from inside Transport::connect: a failure is the owner's to hear later.
  route->timeout_ = transport.context_.loop.after_ms(0, [self] { self->send_hello(); });
  return std::unique_ptr<Route>(std::move(route));
}

UcxRoute::UcxRoute(UcxTransport& transport, LinkId link, const Offer& offer, RouteOwner& owner)
    : transport_(transport),
      link_(link),
      keys_(offer.keys),
      owner_(owner),
      id_(transport.next_route_++),
      probe_(kProbeSliceBytes, std::byte{0x5a}) {
  transport_.routes_[id_] = this;
}

UcxRoute::~UcxRoute() {
  state_ = State::kBroken;
  transport_.routes_.erase(id_);
}

void UcxRoute::fail(const std::string& reason) {
  if (state_ == State::kBroken) return;
  state_ = State::kBroken;
  timeout_.reset();
  owner_.route_broken(link_, unavailable(reason));
}

void UcxRoute::send_hello() {
  WireWriter out;
  out.put(keys_.connect);
  out.put(id_);
  hello_ = out.take();
  timeout_ = transport_.context_.loop.after_ms(transport_.context_.attach_timeout_ms,
                                               [this] { fail("no answer from the peer"); });
  const Result<bool> sent =
      endpoint_->send(kUcxHello, hello_, transport_.worker_->address(), [] {});
  if (!sent.ok()) fail(sent.status().message());
}

// ---- pieces ----

bool UcxRoute::start(const Slice& slice) {
  waiting_.push_back(std::make_shared<Copy>(Copy{.slice = slice}));
  send_pieces();
  return false;
}

void UcxRoute::send_pieces() {
  while (state_ != State::kBroken && !waiting_.empty() && pieces_.size() < kWindow) {
    const std::shared_ptr<Copy> copy = waiting_.front();
    send_piece(copy);
    if (copy->begun == copy->slice.bytes) waiting_.pop_front();
  }
}

void UcxRoute::send_piece(const std::shared_ptr<Copy>& copy) {
  const Slice& slice = copy->slice;
  const int64_t bytes = std::min(slice.bytes - copy->begun, kUcxPayloadBytesMax);
  const uint64_t number = next_piece_++;
  WireWriter out;
  out.put(connection_);
  out.put(keys_.connect);
  out.put(
      UcxPiece{number, slice.slot_gen, slice.offset + copy->begun, slice.group, slice.dst_page});
  Piece& piece = pieces_[number];
  piece = {.copy = copy, .header = out.take()};
  const std::string_view payload(reinterpret_cast<const char*>(slice.src) + copy->begun,
                                 static_cast<size_t>(bytes));
  copy->begun += bytes;
  ++copy->open;
  const Result<bool> sent = endpoint_->send(kUcxPiece, piece.header, payload, [this, number] {
    const auto it = pieces_.find(number);
    if (it == pieces_.end()) return;
    it->second.sent = true;
    end_if_over(number);
  });
  // A send that fails is followed by on_broken, or by the link's end; until then the slice stays in
  // flight.
  piece.sent = !sent.ok() || *sent;
}

void UcxRoute::end_if_over(uint64_t number) {
  const auto it = pieces_.find(number);
  if (!it->second.sent || !it->second.answered) return;
  const std::shared_ptr<Copy> copy = it->second.copy;
  pieces_.erase(it);
  --copy->open;
  if (copy->open == 0 && copy->begun == copy->slice.bytes) end_copy(*copy);
}

void UcxRoute::end_copy(const Copy& copy) {
  if (state_ == State::kBroken) return;
  if (state_ != State::kReady) return end_probe();
  if (copy.refused) {
    owner_.slice_refused(link_, copy.slice.transfer, "the peer has given up this grant");
  } else {
    owner_.slice_done(link_, copy.slice.transfer);
  }
}

// ---- messages ----

void UcxRoute::on_message(uint16_t message, WireReader& in) {
  Nonce proof{};
  if (state_ == State::kBroken || !in.get(proof) || proof != keys_.proof) return;
  switch (message) {
    case kUcxWelcome:
      return on_welcome(in);
    case kUcxAnswers:
      return on_answers(in);
    default:
      return fail("the peer has closed the connection");
  }
}

void UcxRoute::on_welcome(WireReader& in) {
  if (state_ != State::kHello || !in.get(connection_)) return fail("unexpected welcome");
  state_ = State::kPinging;
  probe(1, 1);
}

void UcxRoute::on_answers(WireReader& in) {
  for (UcxAnswer answer; state_ != State::kBroken && in.get(answer);) {
    const auto it = pieces_.find(answer.piece);
    if (it == pieces_.end() || it->second.answered) return fail("unexpected answer");
    it->second.answered = true;
    if (answer.stored == 0) it->second.copy->refused = true;
    end_if_over(answer.piece);
  }
  send_pieces();
}

// ---- measuring ----

void UcxRoute::probe(int64_t bytes, int32_t count) {
  stopwatch_ = {};
  probes_open_ = count;
  for (int32_t i = 0; i < count; ++i) {
    waiting_.push_back(std::make_shared<Copy>(
        Copy{.slice = {.group = kUcxProbeGroup, .bytes = bytes, .src = probe_.data()}}));
  }
  send_pieces();
}

void UcxRoute::end_probe() {
  if (--probes_open_ > 0) return;
  const double elapsed_us = stopwatch_.elapsed_us();
  if (state_ == State::kPinging) {
    const bool first = pings_left_ == kProbePings;
    measurement_.latency_us = first ? elapsed_us : std::min(measurement_.latency_us, elapsed_us);
    if (--pings_left_ > 0) return probe(1, 1);
    state_ = State::kMeasuring;
    return probe(kProbeSliceBytes, kProbeSlices);
  }
  measurement_.gbps = gbps_of(kProbeSliceBytes * kProbeSlices, elapsed_us);
  timeout_.reset();
  state_ = State::kReady;
  owner_.route_ready(link_, measurement_);
}

}  // namespace baton
