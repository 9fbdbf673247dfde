#include "model/page_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class HostSlabMemory final : public SlabMemory {
 public:
  HostSlabMemory() = default;
  HostSlabMemory(const HostSlabMemory&) = delete;
  HostSlabMemory& operator=(const HostSlabMemory&) = delete;
  ~HostSlabMemory() override {
    if (range_ != nullptr) ::munmap(range_, static_cast<size_t>(range_bytes_));
  }

  int64_t granularity() const override { return ::sysconf(_SC_PAGESIZE); }
  std::byte* reserve(int64_t bytes) override;
  Slab make_slab(std::byte* base, int64_t bytes) override;

 private:
  void* range_ = nullptr;
  int64_t range_bytes_ = 0;
};

std::byte* HostSlabMemory::reserve(int64_t bytes) {
  void* range = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    throw ConfigError("KV pool: no address range of " + std::to_string(bytes) +
                      " bytes: " + std::strerror(errno));
  }
  range_ = range;
  range_bytes_ = bytes;
  return static_cast<std::byte*>(range);
}

// A slab that starts and ends on machine pages, so that it can be mapped and taken away alone.
Slab HostSlabMemory::make_slab(std::byte* base, int64_t bytes) {
  const auto fail = [bytes](const char* what) {
    throw ConfigError("KV pool: " + std::string(what) + " for a slab of " + std::to_string(bytes) +
                      " bytes: " + std::strerror(errno));
  };
  Slab slab{.fd = ScopedFd(::memfd_create("baton-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
            .base = base,
            .bytes = bytes};
  if (!slab.fd.valid()) fail("memfd_create");
  // Allocates now: running short of memory is an error at start-up, not a SIGBUS in a step.
  if (::fallocate(slab.fd.get(), 0, 0, bytes) != 0) fail("no memory");
  // Whoever maps it can rely on its size: a shrunken slab would be a SIGBUS in another process.
  if (::fcntl(slab.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) fail("sealing");
  void* mapped = ::mmap(base, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, slab.fd.get(), 0);
  if (mapped == MAP_FAILED) fail("mmap");
  return slab;
}

}  // namespace

std::unique_ptr<SlabMemory> host_slab_memory() {
  return std::make_unique<HostSlabMemory>();
}

PagePool::PagePool(const KvGroup& group, int32_t num_pages, int64_t slab_bytes,
                   std::unique_ptr<SlabMemory> memory)
    : memory_(std::move(memory)), num_pages_(num_pages), page_bytes_(group.page_bytes()) {
  CHECK_GT(num_pages, 0) << "an empty KV pool";
  const int64_t granularity = memory_->granularity();
  // So many KV pages end on a multiple of it.
  const int64_t step = granularity / std::gcd(page_bytes_, granularity);
  const int64_t wanted = std::min<int64_t>(slab_bytes / page_bytes_, num_pages);
  pages_per_slab_ = static_cast<int32_t>(std::max<int64_t>(wanted / step, 1) * step);

  const int64_t range_bytes = round_up(num_pages_ * page_bytes_, granularity);
  base_ = memory_->reserve(range_bytes);
  const int64_t full_slab = pages_per_slab_ * page_bytes_;
  for (int64_t at = 0; at < range_bytes; at += full_slab) {
    slabs_.push_back(memory_->make_slab(base_ + at, std::min(full_slab, range_bytes - at)));
  }
}

}  // namespace baton
