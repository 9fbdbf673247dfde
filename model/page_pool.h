// The memory of one kv_group's pages: one address range over slabs, each its own memfd (exportable,
// revocable one by one). Knows addresses only; who may use a page is the scheduler's PageLedger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/scoped_fd.h"
#include "model/kv_layout.h"

namespace baton {

struct Slab {
  ScopedFd fd;                // memfd, `bytes` long
  std::byte* base = nullptr;  // mapped inside the pool's range
  int64_t bytes = 0;          // whole pages, rounded up to the machine's page size at the end
};

// Immutable after construction, except for the bytes in the pages. Thread-safe.
class PagePool {
 public:
  // `slab_bytes` is rounded to whole KV pages such that a slab is a multiple of the machine's page
  // size where it can be. Throws ConfigError when memory is short.
  PagePool(const KvGroup& group, int32_t num_pages, int64_t slab_bytes);
  ~PagePool();
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
  int32_t num_pages_ = 0;
  int64_t page_bytes_ = 0;
  int32_t pages_per_slab_ = 0;
  std::byte* base_ = nullptr;
  int64_t range_bytes_ = 0;
  std::vector<Slab> slabs_;
};

}  // namespace baton
