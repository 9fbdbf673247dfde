// Frames: how messages lie on a byte stream. Called by link_connection.cc; plain state of one
// thread, no I/O.
//
//   frame = u32 length of the payload, little-endian (<= kFramePayloadMax) | u8 kind | payload
//
// A message longer than a frame is cut in pieces: kPiece, ..., kLastPiece. Messages keep their
// order, except that an urgent one (a heartbeat) may stand between the pieces of another, so a long
// message never looks like a dead peer. One message at a time is in pieces.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton {

inline constexpr size_t kFrameHeaderBytes = 5;
inline constexpr size_t kFramePayloadMax =
    (256 << 10) - kFrameHeaderBytes;  // 256 KiB with its header

enum class FrameKind : uint8_t { kWhole, kPiece, kLastPiece };

// The messages waiting to be written to one peer.
class FrameQueue {
 public:
  void push(std::string message);
  // Goes before all that is not yet in bytes given to next_frames().
  void push_urgent(std::string message);

  // Appends frames to `out` until it has `bytes_min` or more (at most one frame beyond), or none
  // are left.
  void next_frames(size_t bytes_min, std::string& out);

  size_t queued_bytes() const { return queued_bytes_; }  // payloads not yet given out
  bool empty() const { return queued_bytes_ == 0; }
  bool urgent_waits() const { return !urgent_.empty(); }

 private:
  void append_frame(FrameKind kind, std::string_view payload, std::string& out);

  std::deque<std::string> urgent_;
  std::deque<std::string> messages_;
  size_t front_sent_ = 0;  // bytes of messages_.front() that have been given out
  size_t queued_bytes_ = 0;
};

// Takes bytes in any portions, gives whole messages.
class FrameReader {
 public:
  explicit FrameReader(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // True and the next message in `message`, valid until the next call; false when more bytes are
  // needed; a Status when the peer breaks the format or the bound.
  Result<bool> next(std::string_view* message);

 private:
  Status take_frame(FrameKind kind, std::string_view payload, std::string_view* message,
                    bool* whole);

  const size_t message_bytes_max_;
  std::string buffer_;  // [at_, end) are bytes of frames not yet taken
  size_t at_ = 0;
  std::string partial_;
  bool in_pieces_ = false;
};

}  // namespace baton
