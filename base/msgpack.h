// The subset of MessagePack (github.com/msgpack/msgpack, spec.md) that messages are made of: nil,
// bool, integers, float32, float64, bin and array. Called by message_codec.cc. Both ends are plain
// values without recursion: the reader takes hostile bytes and its work and memory are bounded by
// their number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace baton {

// Appends to a string; integers take their shortest form.
class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  void nil();
  void boolean(bool value);
  void uint(uint64_t value);
  void sint(int64_t value);
  void float32(float value);
  void float64(double value);
  void bin(std::string_view bytes);
  void array(uint32_t count);  // the elements follow

 private:
  void big_endian(uint8_t tag, uint64_t value, int bytes);
  std::string& out_;
};

// Reads one value a call. After the first misfit fail() is set for good and every call returns a
// zero value: callers read on and ask once at the end.
class MsgpackReader {
 public:
  explicit MsgpackReader(std::string_view bytes) : rest_(bytes) {}

  bool next_is_nil();  // consumes the nil
  bool boolean();
  uint64_t uint();  // fails on a negative integer
  int64_t sint();   // fails above INT64_MAX
  double number();  // float32, float64 or an integer
  float float32();  // also from float64 (rounded) or an integer
  std::string_view bin();
  // Fails when fewer bytes are left than elements are announced.
  uint32_t array();
  void skip();  // one value, with all that is in it, of any MessagePack type

  // Keeps the first reason only.
  void fail(std::string_view reason);
  bool failed() const { return !reason_.empty(); }
  const std::string& reason() const { return reason_; }
  size_t bytes_left() const { return rest_.size(); }

 private:
  uint8_t tag();
  uint64_t big_endian(int bytes);
  bool take_integer(uint8_t tag, uint64_t* value, bool* negative);
  std::string_view take(uint64_t bytes);

  std::string_view rest_;
  std::string reason_;
};

// Lists of fixed-size numbers travel as bin, little-endian, whatever the host's byte order.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "columns are copied as they lie in memory");

}  // namespace baton
