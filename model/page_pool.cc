#include "model/page_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/status.h"

namespace baton {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A slab that starts and ends on machine pages, so that it can be mapped and taken away alone.
Slab make_slab(std::byte* base, int64_t bytes) {
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

PagePool::PagePool(const KvGroup& group, int32_t num_pages, int64_t slab_bytes)
    : num_pages_(num_pages), page_bytes_(group.page_bytes()) {
  CHECK_GT(num_pages, 0) << "an empty KV pool";
  const int64_t machine_page = ::sysconf(_SC_PAGESIZE);
  // So many KV pages end on a machine page.
  const int64_t step = machine_page / std::gcd(page_bytes_, machine_page);
  const int64_t wanted = std::min<int64_t>(slab_bytes / page_bytes_, num_pages);
  pages_per_slab_ = static_cast<int32_t>(std::max<int64_t>(wanted / step, 1) * step);

  range_bytes_ = round_up(num_pages_ * page_bytes_, machine_page);
  void* range = ::mmap(nullptr, static_cast<size_t>(range_bytes_), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    throw ConfigError("KV pool: no address range of " + std::to_string(range_bytes_) +
                      " bytes: " + std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(range);
  try {
    const int64_t full_slab = pages_per_slab_ * page_bytes_;
    for (int64_t at = 0; at < range_bytes_; at += full_slab) {
      slabs_.push_back(make_slab(base_ + at, std::min(full_slab, range_bytes_ - at)));
    }
  } catch (...) {
    ::munmap(base_, static_cast<size_t>(range_bytes_));
    throw;
  }
}

PagePool::~PagePool() {
  ::munmap(base_, static_cast<size_t>(range_bytes_));
}

}  // namespace baton
