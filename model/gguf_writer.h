// For tests: builds GGUF files byte by byte, also wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace baton {

class GgufWriter {
 public:
  template <typename T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_string(const std::string& text);
  void put_bytes(const std::string& bytes) { bytes_ += bytes; }
  void header(uint32_t version, int64_t num_tensors, int64_t num_values);

  void value_u32(const std::string& key, uint32_t value);
  void value_f32(const std::string& key, float value);
  void value_string(const std::string& key, const std::string& value);
  // `dims` in GGUF's order: innermost first.
  void tensor_info(const std::string& name, const std::vector<int64_t>& dims, uint32_t type,
                   uint64_t offset);
  void pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

uint32_t gguf_type_id(Dtype dtype);  // as tensor_info() takes it

// Writes `bytes` to a fresh file in a folder of the test's own and returns its path.
std::string write_test_file(const std::string& name, const std::string& bytes);

}  // namespace baton
