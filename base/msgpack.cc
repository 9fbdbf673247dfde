#include "base/msgpack.h"

#include <bit>
#include <cstring>
#include <limits>

namespace baton {
namespace {

// Tags of the specification's format overview.
enum Tag : uint8_t {
  kFixArray = 0x90,
  kFixStr = 0xa0,
  kNil = 0xc0,
  kFalse = 0xc2,
  kTrue = 0xc3,
  kBin8 = 0xc4,
  kBin16 = 0xc5,
  kBin32 = 0xc6,
  kFloat32 = 0xca,
  kFloat64 = 0xcb,
  kUint8 = 0xcc,
  kUint16 = 0xcd,
  kUint32 = 0xce,
  kUint64 = 0xcf,
  kInt8 = 0xd0,
  kInt16 = 0xd1,
  kInt32 = 0xd2,
  kInt64 = 0xd3,
  kArray16 = 0xdc,
  kArray32 = 0xdd,
  kNegativeFixInt = 0xe0,
};

// How a tag goes on, for skip(): so many bytes of length, bytes of body, and values inside.
struct Shape {
  int length_bytes = 0;      // a big-endian count follows the tag
  uint64_t body_bytes = 0;   // besides what the count says
  int values_per_count = 0;  // 0: the count is of bytes, 1: of array elements, 2: of map pairs
  uint64_t values = 0;       // known from the tag alone
  bool valid = true;
};

Shape shape_of(uint8_t tag) {
  if (tag <= 0x7f || tag >= kNegativeFixInt) return {};
  if (tag <= 0x8f) return {.values = 2ULL * (tag & 0x0f)};
  if (tag <= 0x9f) return {.values = tag & 0x0fULL};
  if (tag <= 0xbf) return {.body_bytes = tag & 0x1fULL};
  switch (tag) {
    case kNil:
    case kFalse:
    case kTrue:
      return {};
    case kBin8:
    case 0xd9:
      return {.length_bytes = 1};
    case kBin16:
    case 0xda:
      return {.length_bytes = 2};
    case kBin32:
    case 0xdb:
      return {.length_bytes = 4};
    case 0xc7:
      return {.length_bytes = 1, .body_bytes = 1};  // ext: a type byte, then the bytes
    case 0xc8:
      return {.length_bytes = 2, .body_bytes = 1};
    case 0xc9:
      return {.length_bytes = 4, .body_bytes = 1};
    case kUint8:
    case kInt8:
      return {.body_bytes = 1};
    case kUint16:
    case kInt16:
      return {.body_bytes = 2};
    case kFloat32:
    case kUint32:
    case kInt32:
      return {.body_bytes = 4};
    case kFloat64:
    case kUint64:
    case kInt64:
      return {.body_bytes = 8};
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:  // fixext 1, 2, 4, 8, 16
      return {.body_bytes = 1 + (1ULL << (tag - 0xd4))};
    case kArray16:
      return {.length_bytes = 2, .values_per_count = 1};
    case kArray32:
      return {.length_bytes = 4, .values_per_count = 1};
    case 0xde:
      return {.length_bytes = 2, .values_per_count = 2};
    case 0xdf:
      return {.length_bytes = 4, .values_per_count = 2};
    default:
      return {.valid = false};  // 0xc1 is never used
  }
}

}  // namespace

void MsgpackWriter::big_endian(uint8_t tag, uint64_t value, int bytes) {
  out_.push_back(static_cast<char>(tag));
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out_.push_back(static_cast<char>(value >> shift));
}

void MsgpackWriter::nil() {
  out_.push_back(static_cast<char>(kNil));
}

void MsgpackWriter::boolean(bool value) {
  out_.push_back(static_cast<char>(value ? kTrue : kFalse));
}

void MsgpackWriter::uint(uint64_t value) {
  if (value <= 0x7f) {
    out_.push_back(static_cast<char>(value));
  } else if (value <= 0xff) {
    big_endian(kUint8, value, 1);
  } else if (value <= 0xffff) {
    big_endian(kUint16, value, 2);
  } else if (value <= 0xffffffff) {
    big_endian(kUint32, value, 4);
  } else {
    big_endian(kUint64, value, 8);
  }
}

void MsgpackWriter::sint(int64_t value) {
  if (value >= 0) return uint(static_cast<uint64_t>(value));
  const auto bits = static_cast<uint64_t>(value);
  if (value >= -32) {
    out_.push_back(static_cast<char>(value));
  } else if (value >= std::numeric_limits<int8_t>::min()) {
    big_endian(kInt8, bits, 1);
  } else if (value >= std::numeric_limits<int16_t>::min()) {
    big_endian(kInt16, bits, 2);
  } else if (value >= std::numeric_limits<int32_t>::min()) {
    big_endian(kInt32, bits, 4);
  } else {
    big_endian(kInt64, bits, 8);
  }
}

void MsgpackWriter::float32(float value) {
  big_endian(kFloat32, std::bit_cast<uint32_t>(value), 4);
}

void MsgpackWriter::float64(double value) {
  big_endian(kFloat64, std::bit_cast<uint64_t>(value), 8);
}

void MsgpackWriter::bin(std::string_view bytes) {
  const uint64_t size = bytes.size();
  if (size <= 0xff) {
    big_endian(kBin8, size, 1);
  } else if (size <= 0xffff) {
    big_endian(kBin16, size, 2);
  } else {
    big_endian(kBin32, size, 4);
  }
  out_.append(bytes);
}

void MsgpackWriter::array(uint32_t count) {
  if (count <= 15) {
    out_.push_back(static_cast<char>(kFixArray | count));
  } else if (count <= 0xffff) {
    big_endian(kArray16, count, 2);
  } else {
    big_endian(kArray32, count, 4);
  }
}

void MsgpackReader::fail(std::string_view reason) {
  if (reason_.empty()) reason_ = reason;
  rest_ = {};
}

std::string_view MsgpackReader::take(uint64_t bytes) {
  if (bytes > rest_.size()) {
    fail("it ends in the middle of a value");
    return {};
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

uint8_t MsgpackReader::tag() {
  const std::string_view byte = take(1);
  return byte.empty() ? static_cast<uint8_t>(kNil) : static_cast<uint8_t>(byte[0]);
}

uint64_t MsgpackReader::big_endian(int bytes) {
  uint64_t value = 0;
  for (const char byte : take(bytes)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

bool MsgpackReader::next_is_nil() {
  if (rest_.empty() || static_cast<uint8_t>(rest_[0]) != kNil) return false;
  rest_.remove_prefix(1);
  return true;
}

bool MsgpackReader::boolean() {
  const uint8_t t = tag();
  if (t != kTrue && t != kFalse) fail("want a boolean");
  return t == kTrue;
}

// `value` holds the two's complement of a negative integer.
bool MsgpackReader::take_integer(uint8_t t, uint64_t* value, bool* negative) {
  *negative = false;
  if (t <= 0x7f) {
    *value = t;
  } else if (t >= kNegativeFixInt) {
    *value = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(t)));
    *negative = true;
  } else if (t >= kUint8 && t <= kUint64) {
    *value = big_endian(1 << (t - kUint8));
  } else if (t >= kInt8 && t <= kInt64) {
    const int bytes = 1 << (t - kInt8);
    const int unused_bits = 64 - 8 * bytes;
    const auto widened = static_cast<int64_t>(big_endian(bytes) << unused_bits) >> unused_bits;
    *value = static_cast<uint64_t>(widened);
    *negative = widened < 0;
  } else {
    return false;
  }
  return !failed();
}

uint64_t MsgpackReader::uint() {
  uint64_t value = 0;
  bool negative = false;
  if (take_integer(tag(), &value, &negative) && !negative) return value;
  fail("want an integer from 0");
  return 0;
}

int64_t MsgpackReader::sint() {
  uint64_t value = 0;
  bool negative = false;
  if (take_integer(tag(), &value, &negative) &&
      (negative || value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())))
    return static_cast<int64_t>(value);
  fail("want an integer of 64 bits");
  return 0;
}

double MsgpackReader::number() {
  const uint8_t t = tag();
  if (t == kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(big_endian(4)));
  if (t == kFloat64) return std::bit_cast<double>(big_endian(8));
  uint64_t value = 0;
  bool negative = false;
  if (take_integer(t, &value, &negative))
    return negative ? static_cast<double>(static_cast<int64_t>(value)) : static_cast<double>(value);
  fail("want a number");
  return 0;
}

float MsgpackReader::float32() {
  return static_cast<float>(number());
}

std::string_view MsgpackReader::bin() {
  const uint8_t t = tag();
  if (t != kBin8 && t != kBin16 && t != kBin32) {
    fail("want bytes");
    return {};
  }
  return take(big_endian(1 << (t - kBin8)));
}

uint32_t MsgpackReader::array() {
  const uint8_t t = tag();
  uint64_t count = 0;
  if (t >= kFixArray && t < kFixStr) {
    count = t & 0x0f;
  } else if (t == kArray16 || t == kArray32) {
    count = big_endian(t == kArray16 ? 2 : 4);
  } else {
    fail("want a list");
  }
  if (count > rest_.size()) fail("a list announces more elements than bytes follow");
  return failed() ? 0 : static_cast<uint32_t>(count);
}

void MsgpackReader::skip() {
  // Counting the values still owed, instead of descending, needs no stack; each costs at least one
  // byte, so this ends.
  for (uint64_t owed = 1; owed > 0 && !failed(); --owed) {
    const Shape shape = shape_of(tag());
    if (!shape.valid) return fail("0xc1 is no MessagePack value");
    const uint64_t count = shape.length_bytes > 0 ? big_endian(shape.length_bytes) : 0;
    if (shape.values_per_count > 0) {
      owed += count * static_cast<uint64_t>(shape.values_per_count);
    } else {
      take(count);
    }
    take(shape.body_bytes);
    owed += shape.values;
  }
}

}  // namespace baton
