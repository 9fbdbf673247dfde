// The memory of one kv_group's pages: one address range over slabs, each its own allocation with a
// file descriptor (exportable, revocable one by one). Where the memory comes from is SlabMemory's
// business: memfds here, GPU memory in vmm_slabs.h. Knows addresses only; who may use a page is the
// scheduler's PageLedger.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/scoped_fd.h"
#include "model/kv_layout.h"

namespace baton {

struct Slab {
  ScopedFd fd;                // what another process maps it by: a memfd, or CUDA's export
  std::byte* base = nullptr;  // mapped inside the pool's range
  int64_t bytes = 0;          // whole pages, rounded up to the memory's granularity at the end
  // CUDA's handle for other hosts of an NVLink fabric, where the driver gives one.
  std::optional<std::array<std::byte, 64>> fabric_handle;
};

// Makes slabs at given addresses of one range. Owned by its pool.
class SlabMemory {
 public:
  virtual ~SlabMemory() = default;
  virtual int64_t granularity() const = 0;  // of slabs' addresses and sizes
  // The range; once, before the first slab. Throws ConfigError, as does make_slab, which says so
  // when memory is short.
  virtual std::byte* reserve(int64_t bytes) = 0;
  virtual Slab make_slab(std::byte* base, int64_t bytes) = 0;
};

// memfds of this host's memory, sealed, allocated at once.
std::unique_ptr<SlabMemory> host_slab_memory();

// Immutable after construction, except for the bytes in the pages. Thread-safe.
class PagePool {
 public:
  // `slab_bytes` is rounded to whole KV pages such that a slab is a multiple of the memory's
  // granularity where it can be. Throws ConfigError when memory is short.
  PagePool(const KvGroup& group, int32_t num_pages, int64_t slab_bytes,
           std::unique_ptr<SlabMemory> memory = host_slab_memory());
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  int32_t num_pages() const { return num_pages_; }
  int64_t page_bytes() const { return page_bytes_; }
  int32_t pages_per_slab() const { return pages_per_slab_; }
  // Pages are contiguous over the whole range: page p is at base() + p * page_bytes().
  std::byte* base() const { return base_; }
  std::byte* page(int32_t page_id) const { return base_ + page_id * page_bytes_; }
  const std::vector<Slab>& slabs() const { return slabs_; }

 private:
  const std::unique_ptr<SlabMemory> memory_;  // takes the range down with it
  int32_t num_pages_ = 0;
  int64_t page_bytes_ = 0;
  int32_t pages_per_slab_ = 0;
  std::byte* base_ = nullptr;
  std::vector<Slab> slabs_;
};

}  // namespace baton
