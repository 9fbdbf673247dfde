// Memory of the GPU and pinned memory of the host, owned by type. Made at start-up only: nothing
// allocates in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace baton {

// cudaMalloc. Throws ConfigError("GPU memory: got <free> of <all> MiB free, want <n> MiB more")
// when it is short.
struct DeviceMemory {
  static std::byte* allocate(int64_t bytes);
  static void free(std::byte* data);
};

// cudaMallocHost: the host memory that copies run from at full speed and without blocking. Throws
// ConfigError when it is short.
struct PinnedMemory {
  static std::byte* allocate(int64_t bytes);
  static void free(std::byte* data);
};

// 256-byte aligned, contents undefined. Freed with its owner.
template <typename Memory>
class CudaBuffer {
 public:
  CudaBuffer() = default;
  explicit CudaBuffer(int64_t bytes) : data_(Memory::allocate(bytes)), bytes_(bytes) {}
  CudaBuffer(CudaBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CudaBuffer() {
    if (data_ != nullptr) Memory::free(data_);
  }

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  template <typename E>
  E* as() const {
    return reinterpret_cast<E*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

using DeviceBuffer = CudaBuffer<DeviceMemory>;
using PinnedBuffer = CudaBuffer<PinnedMemory>;

}  // namespace baton
