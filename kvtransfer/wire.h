// Fixed binary records of the transports: little-endian integers, appended and read in order.
// Reading past the end is an answer, not a crash: a record comes from another process.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace baton {

static_assert(std::endian::native == std::endian::little,
              "the transports' records are little-endian");

class WireWriter {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : left_(bytes) {}

  template <typename T>
  [[nodiscard]] bool get(T& value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    if (left_.size() < sizeof(value)) return false;
    std::memcpy(&value, left_.data(), sizeof(value));
    left_.remove_prefix(sizeof(value));
    return true;
  }
  [[nodiscard]] bool get_string(std::string& text) {
    uint32_t size = 0;
    if (!get(size) || left_.size() < size) return false;
    text.assign(left_.substr(0, size));
    left_.remove_prefix(size);
    return true;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

}  // namespace baton
