#include "kvtransfer/tcp_receiver.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr int64_t kStoreBytesMax = 256 << 10;  // under the grant board's lock at once
constexpr int64_t kRoundBytesMax = 4 << 20;    // of one on_ready(): other sockets want their turn
constexpr size_t kAnswersMax = 4096;           // unread by the peer; more, and we stop reading

}  // namespace

void TcpReceiver::watch(PollLoop::Watch watch, PollLoop::Watch hello_timeout) {
  watch_ = std::move(watch);
  timeout_ = std::move(hello_timeout);
}

Status TcpReceiver::on_ready() {
  // Bytes that the stream has taken off the socket would not wake us again.
  for (int64_t round_bytes = 0;
       (round_bytes < kRoundBytesMax && answers_.size() < kAnswersMax) || stream_->buffered();) {
    const Result<int64_t> got = in_payload_ ? read_payload() : read_header();
    if (!got.ok()) return got.status();
    if (*got == 0) break;
    round_bytes += *got;
  }
  return flush_answers();
}

Result<int64_t> TcpReceiver::read_some(void* to, int64_t bytes) {
  const Result<size_t> got = stream_->read(static_cast<char*>(to), static_cast<size_t>(bytes));
  if (!got.ok()) return got.status();
  return static_cast<int64_t>(*got);
}

Result<int64_t> TcpReceiver::read_header() {
  const int64_t want = static_cast<int64_t>(welcomed_ ? sizeof(TcpFrame) : kHelloBytes);
  const Result<int64_t> got = read_some(header_.data() + header_bytes_, want - header_bytes_);
  if (!got.ok()) return got;
  header_bytes_ += *got;
  if (header_bytes_ < want) return got;
  header_bytes_ = 0;
  if (!welcomed_) {
    const Status hello = take_hello();
    return hello.ok() ? got : hello;
  }
  std::memcpy(&frame_, header_.data(), sizeof(frame_));
  const Status frame = check_frame();
  if (!frame.ok()) return frame;
  in_payload_ = true;
  payload_bytes_ = 0;
  given_up_ = false;
  return got;
}

Status TcpReceiver::take_hello() {
  WireReader in(std::string_view(header_.data(), kHelloBytes));
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t zero = 0;
  Nonce nonce{};
  if (!in.get(magic) || !in.get(version) || !in.get(zero) || !in.get(nonce) || magic != kTcpMagic ||
      version != kTcpVersion) {
    return invalid_argument("not a hello of this version");
  }
  const std::optional<OfferBook::Found> found = context_.offers.find(nonce);
  if (!found) return invalid_argument("unknown nonce");
  welcomed_ = true;
  link_ = found->link;
  timeout_.reset();
  answers_ += static_cast<char>(TcpAnswer::kWelcome);
  return {};
}

Status TcpReceiver::check_frame() const {
  if (frame_.group == kProbeGroup && frame_.bytes > 0) return {};
  return check_slice(context_.pools, frame_.group, frame_.page, frame_.offset, frame_.bytes);
}

Result<int64_t> TcpReceiver::read_payload() {
  const int64_t want = std::min(frame_.bytes - payload_bytes_, kStoreBytesMax);
  Result<int64_t> got = int64_t{0};
  bool drop = frame_.group == kProbeGroup || given_up_;
  if (!drop) {
    std::byte* const to =
        context_.pools[frame_.group]->page(frame_.page) + frame_.offset + payload_bytes_;
    const GrantBoard::Verdict verdict = context_.grants.store_if_allowed(
        link_, frame_.slot_gen, frame_.group, frame_.page, [&] { got = read_some(to, want); });
    if (verdict == GrantBoard::Verdict::kForbidden) {
      return invalid_argument("page " + std::to_string(frame_.page) + " is not in grant " +
                              std::to_string(frame_.slot_gen));
    }
    drop = given_up_ = verdict == GrantBoard::Verdict::kGivenUp;
  }
  if (drop) {
    std::array<std::byte, 64 << 10> nowhere;
    got = read_some(nowhere.data(), std::min<int64_t>(want, nowhere.size()));
  }
  if (!got.ok()) return got;
  payload_bytes_ += *got;
  if (payload_bytes_ == frame_.bytes) {
    in_payload_ = false;
    answers_ += static_cast<char>(given_up_ ? TcpAnswer::kGivenUp : TcpAnswer::kStored);
  }
  return got;
}

Status TcpReceiver::flush_answers() {
  while (!answers_.empty()) {
    const Result<size_t> sent = stream_->write(answers_);
    if (!sent.ok()) return sent.status();
    if (*sent == 0) break;
    answers_.erase(0, *sent);
  }
  const uint32_t reading = answers_.size() < kAnswersMax ? uint32_t{EPOLLIN} : 0;
  const bool writes = stream_->wants_write(!answers_.empty());
  watch_.set_events(reading | (writes ? uint32_t{EPOLLOUT} : 0));
  return {};
}

}  // namespace baton
