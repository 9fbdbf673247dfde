#include "kvtransfer/handoff_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "kvtransfer/probe.h"

namespace baton {
namespace {

class HostMapping final : public SharedMemory {
 public:
  HostMapping(std::byte* data, int64_t bytes) : SharedMemory(data), bytes_(bytes) {}
  ~HostMapping() override { munmap(data(), static_cast<size_t>(bytes_)); }

 private:
  const int64_t bytes_;
};

// Complete when copy() returns.
class HostCopyQueue final : public CopyQueue {
 public:
  bool has_room() const override { return true; }
  bool copy(std::byte* dst, const std::byte* src, int64_t bytes, void*) override {
    std::memcpy(dst, src, static_cast<size_t>(bytes));
    return true;
  }
  Result<Measurement> measure(std::byte* target) override;
};

Result<Measurement> HostCopyQueue::measure(std::byte* target) {
  const std::vector<std::byte> source(kProbeSliceBytes, std::byte{0x5a});
  const auto copy_all = [&] {
    for (int32_t i = 0; i < kProbeSlices; ++i) {
      std::memcpy(target + i * kProbeSliceBytes, source.data(), kProbeSliceBytes);
    }
  };
  copy_all();  // the kernel makes the pages at the first touch
  const Stopwatch stopwatch;
  copy_all();
  const double gbps = gbps_of(kProbeSliceBytes * kProbeSlices, stopwatch.elapsed_us());
  double latency_us = 1e9;
  for (int32_t i = 0; i < kProbePings; ++i) {
    const Stopwatch ping;
    std::memcpy(target + i * 64, source.data(), 64);
    latency_us = std::min(latency_us, ping.elapsed_us());
  }
  return Measurement{gbps, latency_us};
}

class HostHandoffMemory final : public HandoffMemory {
 public:
  Kind kind() const override { return Kind::kHost; }
  bool waits_for_events() const override { return false; }
  Result<Created> create(int64_t bytes) override;
  Result<std::unique_ptr<SharedMemory>> allocate(int64_t bytes) override;
  Result<std::unique_ptr<SharedMemory>> import(int fd, int64_t bytes) override;
  Status read(void* host, const std::byte* from, int64_t bytes) override {
    std::memcpy(host, from, static_cast<size_t>(bytes));
    return {};
  }
  Status write(std::byte* to, const void* host, int64_t bytes) override {
    std::memcpy(to, host, static_cast<size_t>(bytes));
    return {};
  }
  std::unique_ptr<CopyQueue> make_queue(PollLoop&, CopyQueue::Done) override {
    return std::make_unique<HostCopyQueue>();
  }
  std::unique_ptr<MarkedStream> make_marked_stream(MarkedStream::Passed) override {
    return nullptr;
  }
  std::unique_ptr<PageHasher> make_hasher(std::vector<PagePool*> pools) override {
    return std::make_unique<HostPageHasher>(std::move(pools));
  }
};

Result<HandoffMemory::Created> HostHandoffMemory::create(int64_t bytes) {
  ScopedFd fd(memfd_create("baton-scratch", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), bytes) != 0) {
    return unavailable(std::string("shared memory: ") + strerror(errno));
  }
  Result<std::unique_ptr<SharedMemory>> memory = import(fd.get(), bytes);
  if (!memory.ok()) return memory.status();
  return Created{.memory = std::move(*memory), .key = {.fd = std::move(fd), .handle = {}}};
}

Result<std::unique_ptr<SharedMemory>> HostHandoffMemory::allocate(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return unavailable(std::string("memory: mmap: ") + strerror(errno));
  return std::unique_ptr<SharedMemory>(new HostMapping(static_cast<std::byte*>(data), bytes));
}

Result<std::unique_ptr<SharedMemory>> HostHandoffMemory::import(int fd, int64_t bytes) {
  struct stat info {};
  // Touching what is not there would be a SIGBUS.
  if (fstat(fd, &info) != 0 || info.st_size < bytes) {
    return invalid_argument("shared memory: got " + std::to_string(info.st_size) + " bytes, want " +
                            std::to_string(bytes));
  }
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED)
    return unavailable(std::string("shared memory: mmap: ") + strerror(errno));
  // A child that outlives us would keep a way into the peer's pages.
  madvise(data, static_cast<size_t>(bytes), MADV_DONTFORK);
  return std::unique_ptr<SharedMemory>(new HostMapping(static_cast<std::byte*>(data), bytes));
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> HandoffMemory::import_handle(const FabricHandle&, int64_t) {
  return unavailable("this memory is in no NVLink fabric");
}

std::unique_ptr<HandoffMemory> make_host_handoff_memory() {
  return std::make_unique<HostHandoffMemory>();
}

}  // namespace baton
