#include "kvtransfer/tcp_route.h"

#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr size_t kWindowFrames = 1024;
constexpr int64_t kWindowUnsentBytes = 8 << 20;
constexpr size_t kFramesPerWrite = 16;

// The measurement grows while there is time: 8 MiB in all on a fast network, 16 KiB on one where
// that much would take longer than the attach timeout.
struct ProbeRound {
  int64_t slice_bytes;
  int32_t slices;
  int64_t bytes() const { return slice_bytes * slices; }
};
constexpr std::array<ProbeRound, 4> kRounds = {ProbeRound{16 << 10, 1},
                                               {kProbeSliceBytes, 1},
                                               {kProbeSliceBytes, 4},
                                               {kProbeSliceBytes, kProbeSlices - 5}};

}  // namespace

TcpRoute::TcpRoute(const TransportContext& context, LinkId link, const Offer& offer,
                   std::vector<SocketAddress> addresses, RouteOwner& owner)
    : context_(context),
      link_(link),
      nonce_(offer.keys.connect),
      owner_(owner),
      addresses_(std::move(addresses)),
      probe_(kProbeSliceBytes, std::byte{0x5a}) {
  try_next_address();
}

bool TcpRoute::has_room() const {
  return state_ == State::kReady && frames_.size() < kWindowFrames &&
         unsent_bytes_ < kWindowUnsentBytes;
}

bool TcpRoute::start(const Slice& slice) {
  add({{slice.slot_gen, slice.offset, slice.bytes, slice.group, slice.dst_page},
       slice.src,
       slice.transfer});
  return false;
}

void TcpRoute::add(const Outgoing& outgoing) {
  frames_.push_back(outgoing);
  unsent_bytes_ += outgoing.frame.bytes;
  watch_.set_events(EPOLLIN | EPOLLOUT);
}

// ---- connecting ----

// Each address has the attach timeout; an address that fails at once costs nothing.
void TcpRoute::try_next_address() {
  const auto again = [this] { give_up_address(); };
  watch_.reset();
  state_ = State::kConnecting;
  hello_.clear();
  frames_.clear();
  sent_frames_ = 0;
  sent_bytes_ = unsent_bytes_ = 0;
  pings_left_ = kProbePings;
  const SocketAddress address = addresses_.front();
  addresses_.erase(addresses_.begin());
  address_ = address.to_string();
  round_ = 0;
  const auto* target = reinterpret_cast<const sockaddr*>(&address.storage);
  ScopedFd fd(socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.valid() && (::connect(fd.get(), target, address.bytes) == 0 || errno == EINPROGRESS)) {
    stream_ = context_.credentials.current()->open(std::move(fd), StreamSide::kDialer);
    watch_ =
        context_.loop.watch(stream_->fd(), EPOLLOUT, [this](uint32_t events) { on_ready(events); });
    timeout_ = context_.loop.after_ms(context_.attach_timeout_ms, again);
  } else {
    timeout_ = context_.loop.after_ms(0, again);  // not from inside Transport::connect
  }
}

void TcpRoute::note_failure(const std::string& failure) {
  failures_ += (failures_.empty() ? "" : ", ") + failure;
}

void TcpRoute::give_up_address() {
  note_failure(too_late().message());
  addresses_.empty() ? fail(unavailable(failures_)) : try_next_address();
}

// What this address has not done within the attach timeout.
Status TcpRoute::too_late() const {
  const std::string limit = " in " + std::to_string(context_.attach_timeout_ms) + " ms";
  switch (state_) {
    case State::kHello:
      return unavailable(address_ + ": no answer to the hello" + limit);
    case State::kPinging:
    case State::kMeasuring:
      return unavailable(address_ + ": the measurement has not moved " +
                         std::to_string(std::max<int64_t>(round_bytes_, 1)) + " bytes" + limit);
    default:
      return unavailable(address_ + ": cannot connect");
  }
}

Status TcpRoute::send_hello() {
  set_data_options(stream_->fd(), context_.attach_timeout_ms);
  WireWriter hello;
  hello.put(kTcpMagic);
  hello.put(kTcpVersion);
  hello.put(uint16_t{0});
  hello.put(nonce_);
  hello_ = hello.take();
  state_ = State::kHello;
  return flush();
}

// ---- events ----

void TcpRoute::fail(const Status& reason) {
  state_ = State::kBroken;
  timeout_.reset();
  watch_.reset();
  stream_.reset();
  owner_.route_broken(link_, reason);
}

void TcpRoute::on_ready(uint32_t epoll_events) {
  const Status status = advance(epoll_events);
  if (status.ok()) return;
  if (state_ == State::kReady) return fail(status);
  note_failure(address_ + ": " + status.message());
  addresses_.empty() ? fail(unavailable(failures_)) : try_next_address();
}

Status TcpRoute::advance(uint32_t epoll_events) {
  if (state_ == State::kConnecting) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    getsockopt(stream_->fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) return unavailable(std::string("connect: ") + strerror(error));
    return send_hello();
  }
  if ((epoll_events & ~uint32_t{EPOLLOUT}) != 0) {
    const Status status = read_answers();
    if (!status.ok()) return status;
  }
  return flush();
}

Status TcpRoute::flush() {
  if (Status status = flush_hello(); !status.ok()) return status;
  if (Status status = flush_frames(); !status.ok()) return status;
  const bool pending = !hello_.empty() || sent_frames_ < frames_.size();
  watch_.set_events(stream_->wants_write(pending) ? EPOLLIN | EPOLLOUT : uint32_t{EPOLLIN});
  return {};
}

Status TcpRoute::flush_hello() {
  while (!hello_.empty()) {
    const Result<size_t> sent = stream_->write(hello_);
    if (!sent.ok()) return sent.status();
    if (*sent == 0) return {};
    hello_.erase(0, *sent);
  }
  return {};
}

Status TcpRoute::flush_frames() {
  while (sent_frames_ < frames_.size()) {
    std::array<iovec, 2 * kFramesPerWrite> parts;
    size_t count = 0;
    for (size_t i = sent_frames_; i < frames_.size() && count < parts.size(); ++i) {
      Outgoing& next = frames_[i];
      parts[count++] = {&next.frame, sizeof(next.frame)};
      parts[count++] = {const_cast<std::byte*>(next.src), static_cast<size_t>(next.frame.bytes)};
    }
    size_t skip = static_cast<size_t>(sent_bytes_);
    for (size_t i = 0; i < 2 && skip > 0; ++i) {
      const size_t cut = std::min(skip, parts[i].iov_len);
      parts[i] = {static_cast<char*>(parts[i].iov_base) + cut, parts[i].iov_len - cut};
      skip -= cut;
    }
    const Result<size_t> sent = stream_->write_gathered({parts.data(), count});
    if (!sent.ok()) return sent.status();
    if (*sent == 0) return {};
    sent_bytes_ += static_cast<int64_t>(*sent);
    while (sent_frames_ < frames_.size()) {
      const int64_t frame_bytes = sizeof(TcpFrame) + frames_[sent_frames_].frame.bytes;
      if (sent_bytes_ < frame_bytes) break;
      sent_bytes_ -= frame_bytes;
      unsent_bytes_ -= frames_[sent_frames_].frame.bytes;
      ++sent_frames_;
    }
  }
  return {};
}

Status TcpRoute::read_answers() {
  std::array<char, 256> answers;
  do {
    const Result<size_t> got = stream_->read(answers.data(), answers.size());
    if (!got.ok()) return got.status();
    for (size_t i = 0; i < *got; ++i) {
      const Status status = take_answer(static_cast<TcpAnswer>(answers[i]));
      if (!status.ok()) return status;
    }
  } while (stream_->buffered());  // of that, the socket would not tell again
  return {};
}

Status TcpRoute::take_answer(TcpAnswer answer) {
  if (state_ == State::kHello) {
    if (answer != TcpAnswer::kWelcome) return invalid_argument("unexpected answer to the hello");
    state_ = State::kPinging;
    send_probe(1, 1);
    return {};
  }
  const bool known = answer == TcpAnswer::kStored || answer == TcpAnswer::kGivenUp;
  if (!known || sent_frames_ == 0) return invalid_argument("unexpected answer");
  const TransferId transfer = frames_.front().transfer;
  frames_.pop_front();
  --sent_frames_;
  if (state_ != State::kReady) {
    take_probe_answer();
  } else if (answer == TcpAnswer::kStored) {
    owner_.slice_done(link_, transfer);
  } else {
    owner_.slice_refused(link_, transfer, "the peer has given up this grant");
  }
  return {};
}

// ---- measuring ----

void TcpRoute::send_probe(int64_t bytes, int32_t count) {
  stopwatch_ = {};
  for (int32_t i = 0; i < count; ++i)
    add({{.bytes = bytes, .group = kProbeGroup}, probe_.data(), 0});
}

// False: enough is known, or the next round would take too long.
bool TcpRoute::send_next_round() {
  if (round_ == kRounds.size()) return false;
  const ProbeRound& next = kRounds[round_];
  const double next_us =
      static_cast<double>(next.bytes()) / std::max(measurement_.gbps, 1e-9) / 1e3;
  if (round_ > 0 && next_us > static_cast<double>(context_.attach_timeout_ms) * 1e3 / 4)
    return false;
  ++round_;
  round_bytes_ = next.bytes();
  send_probe(next.slice_bytes, next.slices);
  return true;
}

void TcpRoute::take_probe_answer() {
  if (state_ == State::kPinging) {
    const double elapsed_us = stopwatch_.elapsed_us();
    const bool first = pings_left_ == kProbePings;
    measurement_.latency_us = first ? elapsed_us : std::min(measurement_.latency_us, elapsed_us);
    if (--pings_left_ > 0) return send_probe(1, 1);
    state_ = State::kMeasuring;
  } else {
    if (!frames_.empty()) return;
    measurement_.gbps = gbps_of(round_bytes_, stopwatch_.elapsed_us());
  }
  if (send_next_round()) return;
  probe_ = {};
  timeout_.reset();
  state_ = State::kReady;
  owner_.route_ready(link_, measurement_);
}

}  // namespace baton
