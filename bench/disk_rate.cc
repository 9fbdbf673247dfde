#include "bench/disk_rate.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"
#include "model/tensor_store.h"

namespace baton {
namespace {

constexpr size_t kPageBytes = 4096;

ScopedFd open_file(const std::string& path, int flags) {
  ScopedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!fd.valid() && errno != EINVAL)
    throw ConfigError(path + ": cannot open: " + std::strerror(errno));
  return fd;
}

}  // namespace

double direct_read_rate(const std::string& path, int64_t bytes, int32_t threads,
                        int64_t read_bytes) {
  const ScopedFd fd = open_file(path, O_DIRECT);
  if (!fd.valid()) return 0;
  const int64_t num_reads = bytes / read_bytes;
  std::atomic<int64_t> next{0}, got{0};
  const auto read_some = [&] {
    const std::unique_ptr<void, void (*)(void*)> buffer(
        std::aligned_alloc(kPageBytes, static_cast<size_t>(read_bytes)), std::free);
    for (int64_t i = next++; i < num_reads; i = next++) {
      const ssize_t count =
          ::pread(fd.get(), buffer.get(), static_cast<size_t>(read_bytes), i * read_bytes);
      if (count > 0) got += count;
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> readers;
  for (int32_t i = 0; i < threads; ++i) readers.emplace_back(read_some);
  for (std::thread& reader : readers) reader.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return static_cast<double>(got) / taken.count();
}

void drop_from_page_cache(const std::string& path) {
  const ScopedFd fd = open_file(path, 0);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

double cached_fraction(const std::string& path) {
  const MappedFile file(path);
  const size_t pages = (static_cast<size_t>(file.size()) + kPageBytes - 1) / kPageBytes;
  std::vector<unsigned char> resident(pages);
  if (::mincore(const_cast<std::byte*>(file.data()), static_cast<size_t>(file.size()),
                resident.data()) != 0)
    throw ConfigError(path + ": mincore: " + std::strerror(errno));
  const auto cached =
      std::count_if(resident.begin(), resident.end(), [](unsigned char c) { return c & 1; });
  return static_cast<double>(cached) / static_cast<double>(pages);
}

}  // namespace baton
