#include "base/link_connection.h"

#include <algorithm>

#include "base/log.h"
#include "base/message_codec.h"

namespace baton {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// At most so much is read before other connections have their turn.
constexpr size_t kReadRoundBytes = 1 << 20;
constexpr size_t kWriteBytes = 256 << 10;

}  // namespace

LinkConnection::LinkConnection(LinkId id, std::unique_ptr<ByteStream> stream, Hello hello,
                               std::string address, const LinkConfig& config, int64_t now_us)
    : id_(id),
      stream_(std::move(stream)),
      address_(std::move(address)),
      config_(config),
      hello_deadline_us_(now_us + config.hello_timeout_ms * 1000),
      hello_(std::move(hello)),
      reader_(kMessageBytesMax),
      heard_us_(now_us),
      asked_us_(now_us) {
  out_ = hello_.take_output();
}

void LinkConnection::receive(int64_t now_us) {
  if (!read_status_.ok()) return;
  char bytes[kReadBytes];
  // What the stream has taken off the socket would not wake us again.
  for (size_t total = 0; total < kReadRoundBytes || stream_->buffered();) {
    const Result<size_t> n = stream_->read(bytes, sizeof bytes);
    if (!n.ok()) {
      read_status_ = n.status();
      return;
    }
    if (*n == 0) return;
    total += *n;
    bytes_in_ += static_cast<int64_t>(*n);
    heard_us_ = now_us;
    if (announced_up_) {
      reader_.feed({bytes, *n});
    } else {
      in_.append(bytes, *n);
    }
  }
}

LinkConnection::Event LinkConnection::next(int64_t now_us) {
  if (!announced_up_) return next_of_hello(now_us);
  std::string_view bytes;
  for (;;) {
    const Result<bool> more = reader_.next(&bytes);
    if (!more.ok()) return more.status();
    if (!*more) break;
    Result<Message> message = decode_message(bytes);
    if (!message.ok() && message.status().code() == Code::kNotFound) {
      log_debug("message_passed_over", {{"link", id_}, {"reason", message.status().message()}});
      continue;
    }
    if (!message.ok()) return message.status();
    if (const auto* heartbeat = std::get_if<Heartbeat>(&*message)) {
      take_heartbeat(*heartbeat, now_us);
      continue;
    }
    return std::move(*message);
  }
  if (!read_status_.ok()) return read_status_;
  return Nothing{};
}

LinkConnection::Event LinkConnection::next_of_hello(int64_t now_us) {
  if (!in_.empty()) hello_.bind_channel(stream_->channel_binding());
  const Status status = hello_.feed(in_);
  if (const std::string said = hello_.take_output(); !said.empty()) {
    out_ += said;
    if (!hello_.up()) asked_us_ = now_us;
  }
  if (!status.ok()) return status;
  if (hello_.up()) return announce_up(now_us);
  if (!read_status_.ok()) return read_status_;
  return Nothing{};
}

LinkConnection::Event LinkConnection::announce_up(int64_t now_us) {
  announced_up_ = true;
  reader_.feed(in_);
  in_ = {};
  heartbeat_us_ = now_us;
  renew_lease(asked_us_, now_us);
  return Up{};
}

Status LinkConnection::send(const Message& message) {
  std::string bytes = encode_message(message);
  if (bytes.size() > kMessageBytesMax)
    return internal_error(std::string(message_name(message)) + ": got " +
                          std::to_string(bytes.size()) + " bytes to send, want at most " +
                          std::to_string(kMessageBytesMax));
  frames_.push(std::move(bytes));
  if (check_outbox().ok()) return {};
  if (Status status = flush(); !status.ok()) return status;
  return check_outbox();
}

Status LinkConnection::check_outbox() const {
  const auto bound = static_cast<size_t>(config_.outbox_bytes_max);
  if (frames_.queued_bytes() <= bound) return {};
  return Status(Code::kResourceExhausted,
                "link.outbox_bytes_max: got " + std::to_string(frames_.queued_bytes()) +
                    " bytes that the peer does not read, want at most " + std::to_string(bound));
}

Status LinkConnection::flush() {
  for (;;) {
    if (out_at_ == out_.size()) {
      out_.clear();
      out_at_ = 0;
      frames_.next_frames(kWriteBytes, out_);
      if (out_.empty()) return {};
    }
    const Result<size_t> n = stream_->write(std::string_view(out_).substr(out_at_));
    if (!n.ok()) return n.status();
    if (*n == 0) return {};
    out_at_ += *n;
    bytes_out_ += static_cast<int64_t>(*n);
  }
}

int64_t LinkConnection::outbox_bytes() const {
  return static_cast<int64_t>(out_.size() - out_at_ + frames_.queued_bytes());
}

Status LinkConnection::tick(int64_t now_us) {
  if (!announced_up_) {
    if (now_us < hello_deadline_us_) return {};
    return Status(Code::kDeadlineExceeded, "hello: got none that is whole within " +
                                               std::to_string(config_.hello_timeout_ms) + " ms");
  }
  if (const int64_t silent_ms = (now_us - heard_us_) / 1000; silent_ms >= config_.lease_ms)
    return Status(Code::kDeadlineExceeded, "peer silent for " + std::to_string(silent_ms) +
                                               " ms, want a sign of life within " +
                                               std::to_string(config_.lease_ms));
  // Answers to heartbeats queue up too, at a peer that asks and does not read.
  if (Status status = check_outbox(); !status.ok()) return status;
  if (now_us >= heartbeat_us_) {
    // One that still waits to be written says nothing new when sent twice.
    if (!frames_.urgent_waits()) frames_.push_urgent(encode_message(Heartbeat{.sent_us = now_us}));
    heartbeat_us_ = now_us + std::min(config_.lease_ms, hello_.peer_lease_ms()) * 1000 / 4;
  }
  return {};
}

int64_t LinkConnection::next_tick_us() const {
  if (!announced_up_) return hello_deadline_us_;
  return std::min(heartbeat_us_, heard_us_ + config_.lease_ms * 1000);
}

void LinkConnection::take_heartbeat(const Heartbeat& heartbeat, int64_t now_us) {
  if (heartbeat.echoed_us == 0) {
    frames_.push_urgent(
        encode_message(Heartbeat{.sent_us = now_us, .echoed_us = heartbeat.sent_us}));
  } else {
    renew_lease(heartbeat.echoed_us, now_us);
  }
}

void LinkConnection::renew_lease(int64_t asked_us, int64_t now_us) {
  // The peer counts its silence from when it heard us, which is after we asked: what we hold ends
  // first.
  const int64_t until_us = std::min(asked_us, now_us) + hello_.peer_lease_ms() * 1000;
  if (until_us > lease_->load()) lease_->store(until_us);
}

}  // namespace baton
