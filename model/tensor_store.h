// The tensors of a model as they lie in files: names, shapes, types, addresses. Made by
// safetensors.h and gguf.h, read by weights.cc and compat_id.cc. Immutable after it has been made;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/scoped_fd.h"
#include "kernels/dtype.h"
#include "kernels/linear/weight_source.h"

namespace baton {

// A file mapped read-only for the life of the object, which can also be read. Faults of a mapping
// come one at a time a thread: fine for headers and for weights that stay mapped, too slow to load
// a GPU from a disk.
class MappedFile final : public WeightSource {
 public:
  explicit MappedFile(const std::string& path);  // throws ConfigError
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() override;

  void read(const std::string& tensor, int64_t offset, std::span<std::byte> to) const override;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const std::string path_;
  ScopedFd fd_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

struct StoredTensor {
  std::string dtype_name;      // as the file calls it
  std::optional<Dtype> dtype;  // empty: a type that we cannot compute with
  std::vector<int64_t> shape;  // row-major, outermost first (GGUF's order is turned round)
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  const MappedFile* file = nullptr;  // that `data` points into
};

struct TensorStore {
  std::string path;  // for messages: the file or folder
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::map<std::string, StoredTensor> tensors;

  const StoredTensor* find(const std::string& name) const {
    const auto it = tensors.find(name);
    return it == tensors.end() ? nullptr : &it->second;
  }
};

std::string shape_string(const std::vector<int64_t>& shape);  // "[256, 64]"

}  // namespace baton
