// A reading position in a mapped GGUF file, used by gguf.cc. Every failure is a ConfigError that
// names the file.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "base/status.h"
#include "model/tensor_store.h"

namespace baton {

constexpr uint64_t kGgufStringBytesMax = uint64_t{1} << 30;

// Walks the mapped bytes and never past their end.
class GgufCursor {
 public:
  explicit GgufCursor(const MappedFile& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(file_.path() + ": " + what);
  }
  int64_t left() const { return file_.size() - at_; }
  int64_t at() const { return at_; }

  template <typename T>
  T read(const char* what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += static_cast<int64_t>(sizeof value);
    return value;
  }
  std::string read_string(const char* what) {
    const auto bytes = read<uint64_t>(what);
    if (bytes > kGgufStringBytesMax) {
      fail(std::string(what) + ": string of " + std::to_string(bytes) + " bytes, want at most " +
           std::to_string(kGgufStringBytesMax));
    }
    need(bytes, what);
    std::string text(reinterpret_cast<const char*>(file_.data()) + at_, bytes);
    at_ += static_cast<int64_t>(bytes);
    return text;
  }
  // A count of things that take at least `bytes_each`: refused before anything is allocated for it.
  uint64_t read_count(const char* what, uint64_t bytes_each) {
    const auto count = read<uint64_t>(what);
    if (count > static_cast<uint64_t>(left()) / bytes_each) {
      fail(std::string(what) + ": got " + std::to_string(count) + ", but only " +
           std::to_string(left()) + " bytes are left in the file");
    }
    return count;
  }

 private:
  void need(uint64_t bytes, const char* what) const {
    if (bytes > static_cast<uint64_t>(left())) {
      fail(std::string("cut short at byte ") + std::to_string(at_) + ", in " + what);
    }
  }

  const MappedFile& file_;
  int64_t at_ = 0;
};

}  // namespace baton
