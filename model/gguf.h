// Reader for GGUF v2 and v3 (github.com/ggml-org/ggml, docs/gguf.md), little-endian: metadata,
// tensor list, mapped data. Everything in the file is hostile until checked: counts, lengths,
// offsets, types. Called at load time only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor_store.h"

namespace baton {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// One metadata value. Integers and booleans are widened to int64 (a u64 above its range is
// refused), floats to double.
struct GgufValue {
  GgufType type = GgufType::kU8;  // of the elements, for an array
  bool is_array = false;
  std::vector<int64_t> integers;  // one element unless is_array
  std::vector<double> floats;
  std::vector<std::string> strings;
};

// Metadata with checked access. A getter throws ConfigError when the key is there with another
// type; the ones without a fallback also when it is missing.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  GgufMetadata(std::string file, std::map<std::string, GgufValue> values)
      : file_(std::move(file)), values_(std::move(values)) {}

  bool has(const std::string& key) const { return values_.contains(key); }
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t fallback) const;
  double number(const std::string& key) const;  // integers count too
  double number(const std::string& key, double fallback) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string string(const std::string& key) const;
  std::string string(const std::string& key, const std::string& fallback) const;
  std::vector<std::string> strings(const std::string& key) const;  // empty when missing
  std::vector<int64_t> integers(const std::string& key) const;     // empty when missing
  const std::string& file() const { return file_; }

 private:
  const GgufValue& scalar(const std::string& key, const char* want) const;

  std::string file_;
  std::map<std::string, GgufValue> values_;
};

struct GgufFile {
  GgufMetadata metadata;
  TensorStore tensors;
};

// Maps the file; touches only its head. Throws ConfigError.
GgufFile open_gguf(const std::string& path);

}  // namespace baton
