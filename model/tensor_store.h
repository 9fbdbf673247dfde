// The tensors of a model as they lie in mapped files: names, shapes, types, addresses. Made by
// safetensors.h and gguf.h, read by weights.cc and compat_id.cc. Immutable after it has been made;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace baton {

// A file mapped read-only for the life of the object.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // throws ConfigError
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

struct StoredTensor {
  std::string dtype_name;      // as the file calls it
  std::optional<Dtype> dtype;  // empty: a type that we cannot compute with
  std::vector<int64_t>
      shape;  // row-major, outermost dimension first (GGUF's order is turned round)
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

struct TensorStore {
  std::string path;  // for messages: the file or folder
  std::vector<MappedFile> files;
  std::map<std::string, StoredTensor> tensors;

  const StoredTensor* find(const std::string& name) const {
    const auto it = tensors.find(name);
    return it == tensors.end() ? nullptr : &it->second;
  }
};

std::string shape_string(const std::vector<int64_t>& shape);  // "[256, 64]"

}  // namespace baton
