// Memory for packed weights: aligned to cache lines, on huge pages where the kernel grants them (a
// decode step walks through all weights, and 4 KiB pages would cost a TLB miss each). Moves, never
// copies.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace baton {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes) {
    const int64_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : 64;
    const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<uint8_t*>(std::aligned_alloc(alignment, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
    // Advice only: without huge pages everything works, somewhat slower.
    if (alignment == kHugePageBytes) madvise(data_.get(), rounded, MADV_HUGEPAGE);
  }

  uint8_t* data() { return data_.get(); }

 private:
  static constexpr int64_t kHugePageBytes = 2 << 20;
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace baton
