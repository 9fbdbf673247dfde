// The answer to one HTTP/1.1 GET (RFC 9112): head, and body by length, in chunks or up to the end
// of the stream. Called by kube_api.cc, as bytes come. Plain state, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace baton {

class HttpAnswer {
 public:
  // An error: this is no HTTP/1.1, or more than is wanted.
  Status feed(std::string_view bytes);
  // The stream has ended: OK where that is how the body ends.
  Status end();

  bool has_head() const { return state_ > State::kHead; }
  bool complete() const { return state_ == State::kComplete; }
  int32_t status() const { return status_; }                // once it has a head
  int64_t retry_after_s() const { return retry_after_s_; }  // of the head; 0: none
  std::string take_body();                                  // what has come since the last call

 private:
  enum class State {
    kStatusLine,
    kHead,
    kChunkSize,
    kChunk,
    kChunkEnd,
    kTrailer,
    kSized,
    kToEnd,
    kComplete
  };

  bool line(std::string& out);
  Status step(bool& moved);
  Status take_status_line(const std::string& line);
  Status take_field(const std::string& line);
  Status begin_body();
  Status take_chunk_size(const std::string& line);
  bool take_bytes();

  State state_ = State::kStatusLine;
  std::string in_;
  std::string body_;
  int32_t status_ = 0;
  int64_t length_ = -1;  // Content-Length; none: -1
  int64_t rest_ = 0;     // of the chunk or the body
  bool chunked_ = false;
  int64_t retry_after_s_ = 0;
  size_t head_bytes_ = 0;
};

}  // namespace baton
