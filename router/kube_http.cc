#include "router/kube_http.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace baton {
namespace {

constexpr size_t kHeadBytesMax = 64 << 10;
constexpr size_t kLineBytesMax = 16 << 10;
constexpr int64_t kChunkBytesMax = int64_t{1} << 32;

Status malformed(const std::string& what) {
  return invalid_argument("HTTP answer: " + what);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t") + 1);
  text.erase(0, text.find_first_not_of(" \t"));
  return text;
}

// -1: not a number.
int64_t number(std::string_view text, int base) {
  int64_t value = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc() && stop == end && value >= 0 ? value : -1;
}

}  // namespace

std::string HttpAnswer::take_body() {
  return std::exchange(body_, {});
}

Status HttpAnswer::feed(std::string_view bytes) {
  in_ += bytes;
  for (bool moved = true; moved && !complete();) {
    moved = false;
    if (Status status = step(moved); !status.ok()) return status;
  }
  const bool in_line =
      state_ != State::kChunk && state_ != State::kSized && state_ != State::kToEnd;
  if (in_line && !complete() && in_.size() > kLineBytesMax) return malformed("a line without end");
  return {};
}

Status HttpAnswer::end() {
  if (state_ == State::kToEnd) state_ = State::kComplete;
  if (complete()) return {};
  return unavailable(has_head() ? "the answer was cut off" : "closed without an answer");
}

// Takes the next line, without its end.
bool HttpAnswer::line(std::string& out) {
  const size_t end = in_.find('\n');
  if (end == std::string::npos) return false;
  out = in_.substr(0, end);
  if (out.ends_with('\r')) out.pop_back();
  in_.erase(0, end + 1);
  return true;
}

Status HttpAnswer::step(bool& moved) {
  if (state_ == State::kChunk || state_ == State::kSized || state_ == State::kToEnd) {
    moved = take_bytes();
    return {};
  }
  std::string text;
  moved = line(text);
  if (!moved) return {};
  switch (state_) {
    case State::kStatusLine:
      return take_status_line(text);
    case State::kHead:
      return text.empty() ? begin_body() : take_field(text);
    case State::kChunkSize:
      return take_chunk_size(text);
    case State::kChunkEnd:
      state_ = State::kChunkSize;
      return text.empty() ? Status() : malformed("a chunk longer than its size");
    default:  // kTrailer
      if (text.empty()) state_ = State::kComplete;
      return {};
  }
}

// "HTTP/1.1 200 OK"
Status HttpAnswer::take_status_line(const std::string& line) {
  constexpr size_t kCodeAt = 9, kCodeDigits = 3;
  if (!line.starts_with("HTTP/1.") || line.size() < kCodeAt + kCodeDigits)
    return malformed("got no status line");
  status_ = static_cast<int32_t>(number(line.substr(kCodeAt, kCodeDigits), 10));
  if (status_ < 100) return malformed("a status line without a status");
  state_ = State::kHead;
  return {};
}

Status HttpAnswer::take_field(const std::string& line) {
  head_bytes_ += line.size();
  if (head_bytes_ > kHeadBytesMax) return malformed("a head of more than 64 KiB");
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return malformed("a header without a colon");
  const std::string name = lower(line.substr(0, colon));
  const std::string value = trimmed(line.substr(colon + 1));
  if (name == "content-length") {
    length_ = number(value, 10);
    if (length_ < 0) return malformed("Content-Length " + value.substr(0, 40));
  } else if (name == "transfer-encoding") {
    chunked_ = lower(value) == "chunked";
    if (!chunked_) return malformed("Transfer-Encoding " + value.substr(0, 40));
  } else if (name == "retry-after") {
    retry_after_s_ = std::max<int64_t>(0, number(value, 10));
  }
  return {};
}

Status HttpAnswer::begin_body() {
  if (status_ < 200) {  // an interim answer: the true one follows
    state_ = State::kStatusLine;
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else if (length_ < 0) {
    state_ = State::kToEnd;
  } else {
    rest_ = length_;
    state_ = rest_ == 0 ? State::kComplete : State::kSized;
  }
  return {};
}

// "1f4;extension"
Status HttpAnswer::take_chunk_size(const std::string& line) {
  rest_ = number(trimmed(line.substr(0, line.find(';'))), 16);
  if (rest_ < 0 || rest_ > kChunkBytesMax) return malformed("a chunk without a size");
  state_ = rest_ == 0 ? State::kTrailer : State::kChunk;
  return {};
}

bool HttpAnswer::take_bytes() {
  size_t n = in_.size();
  if (state_ != State::kToEnd) n = std::min(n, static_cast<size_t>(rest_));
  body_.append(in_, 0, n);
  in_.erase(0, n);
  rest_ -= static_cast<int64_t>(n);
  if (state_ == State::kToEnd || rest_ > 0) return false;
  state_ = state_ == State::kChunk ? State::kChunkEnd : State::kComplete;
  return true;
}

}  // namespace baton
