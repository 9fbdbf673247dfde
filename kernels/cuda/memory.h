// Memory of the GPU and pinned memory of the host, owned by type. Made at start-up only: nothing
// allocates in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace baton {

// cudaMalloc; 256-byte aligned, contents undefined. Freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws ConfigError("... GPU memory: got <free> bytes free, want <bytes>") when it is short.
  explicit DeviceBuffer(int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer();

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

// cudaMallocHost: the host memory that copies run from at full speed and without blocking.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(int64_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer();

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

}  // namespace baton
