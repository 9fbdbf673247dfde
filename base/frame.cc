#include "base/frame.h"

#include <algorithm>

namespace baton {
namespace {

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

void FrameQueue::push(std::string message) {
  CHECK(!message.empty()) << "an empty message has no frame";
  queued_bytes_ += message.size();
  messages_.push_back(std::move(message));
}

void FrameQueue::push_urgent(std::string message) {
  CHECK(!message.empty() && message.size() <= kFramePayloadMax)
      << "an urgent message is one frame, got " << message.size() << " bytes";
  queued_bytes_ += message.size();
  urgent_.push_back(std::move(message));
}

void FrameQueue::append_frame(FrameKind kind, std::string_view payload, std::string& out) {
  for (int shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(payload.size() >> shift));
  out.push_back(static_cast<char>(kind));
  out.append(payload);
  queued_bytes_ -= payload.size();
}

void FrameQueue::next_frames(size_t bytes_min, std::string& out) {
  while (out.size() < bytes_min && !empty()) {
    if (!urgent_.empty()) {
      append_frame(FrameKind::kWhole, urgent_.front(), out);
      urgent_.pop_front();
      continue;
    }
    const std::string& message = messages_.front();
    const std::string_view rest = std::string_view(message).substr(front_sent_);
    if (rest.size() > kFramePayloadMax) {
      append_frame(FrameKind::kPiece, rest.substr(0, kFramePayloadMax), out);
      front_sent_ += kFramePayloadMax;
      continue;
    }
    append_frame(front_sent_ > 0 ? FrameKind::kLastPiece : FrameKind::kWhole, rest, out);
    messages_.pop_front();
    front_sent_ = 0;
  }
}

Result<bool> FrameReader::next(std::string_view* message) {
  if (!in_pieces_) partial_ = std::string();  // has been given out; its memory goes
  for (;;) {
    const std::string_view rest = std::string_view(buffer_).substr(at_);
    const bool has_header = rest.size() >= kFrameHeaderBytes;
    const size_t length = has_header ? read_u32(rest) : 0;
    if (length > kFramePayloadMax)
      return invalid_argument("frame length: got " + std::to_string(length) + ", want at most " +
                              std::to_string(kFramePayloadMax));
    if (!has_header || rest.size() < kFrameHeaderBytes + length) {
      // Moving the rest of a frame once per round of reads keeps the buffer within a frame and one
      // read.
      buffer_.erase(0, at_);
      at_ = 0;
      return false;
    }
    at_ += kFrameHeaderBytes + length;
    bool whole = false;
    Status status = take_frame(static_cast<FrameKind>(rest[4]),
                               rest.substr(kFrameHeaderBytes, length), message, &whole);
    if (!status.ok()) return status;
    if (whole) return true;
  }
}

Status FrameReader::take_frame(FrameKind kind, std::string_view payload, std::string_view* message,
                               bool* whole) {
  *whole = false;
  switch (kind) {
    case FrameKind::kWhole:
      *message = payload;
      *whole = true;
      return {};
    case FrameKind::kPiece:
    case FrameKind::kLastPiece:
      break;
    default:
      return invalid_argument("frame kind: got " + std::to_string(static_cast<int>(kind)) +
                              ", want 0, 1 or 2");
  }
  if (kind == FrameKind::kLastPiece && !in_pieces_)
    return invalid_argument("frame kind: got a last piece without a first");
  if (partial_.size() + payload.size() > message_bytes_max_)
    return invalid_argument("message: got more than " + std::to_string(message_bytes_max_) +
                            " bytes, the most there can be");
  partial_.append(payload);
  in_pieces_ = kind == FrameKind::kPiece;
  if (in_pieces_) return {};
  *message = partial_;
  *whole = true;
  return {};
}

}  // namespace baton
