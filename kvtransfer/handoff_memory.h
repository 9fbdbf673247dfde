// How a process touches the memory that KV pools are made of, its own and a peer's: the host's
// (memfd and memcpy: handoff_memory.cc) or a GPU's (VMM allocations and copy engines:
// handoff_memory_cuda.cc). What transport "mapped" needs of either. Handoff thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"
#include "kvtransfer/marked_stream.h"
#include "kvtransfer/page_hasher.h"
#include "kvtransfer/poll_loop.h"
#include "kvtransfer/transport.h"

namespace baton {

// CUDA's key to an allocation, for any process of the NVLink fabric (CU_MEM_HANDLE_TYPE_FABRIC).
using FabricHandle = std::array<std::byte, 64>;

// What memory is imported by: a descriptor on this host, a handle from another.
struct MemoryKey {
  ScopedFd fd;
  std::optional<FabricHandle> handle;
};
struct MemoryKeyView {
  int fd = -1;
  const FabricHandle* handle = nullptr;  // null: it has none
};

// Memory that two processes share; our mapping of it goes with the object.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  std::byte* data() const { return data_; }

 protected:
  explicit SharedMemory(std::byte* data) : data_(data) {}

 private:
  std::byte* const data_;
};

// Copies from our pages into a peer's, in order. Its destructor waits for those under way; nothing
// is called afterwards.
class CopyQueue {
 public:
  // So many of the oldest copies under way have completed. Called from PollLoop::poll.
  using Done = std::function<void(int64_t copies)>;

  virtual ~CopyQueue() = default;
  virtual bool has_room() const = 0;
  // True: it is complete already. False: it is under way, Done follows. `after`: an event that the
  // copy waits for (HandoffMemory::waits_for_events), or null. REQUIRES: has_room().
  virtual bool copy(std::byte* dst, const std::byte* src, int64_t bytes, void* after) = 0;
  // Copies kProbeSlices slices to `target` (probe.h), reckons and waits; chooses between its ways
  // to copy. REQUIRES: no copy yet.
  virtual Result<Measurement> measure(std::byte* target) = 0;
};

class HandoffMemory {
 public:
  enum class Kind : uint8_t { kHost = 1, kCuda = 2 };
  struct Created {
    std::unique_ptr<SharedMemory> memory;
    MemoryKey key;  // what a peer imports it by
  };

  virtual ~HandoffMemory() = default;
  virtual Kind kind() const = 0;  // peers of unlike kinds cannot map each other's
  // Its copies can be enqueued before their source is complete.
  virtual bool waits_for_events() const = 0;
  virtual Result<Created> create(int64_t bytes) = 0;
  // Without a descriptor: what a library shares in ways of its own. At start-up only.
  virtual Result<std::unique_ptr<SharedMemory>> allocate(int64_t bytes) = 0;
  // `bytes` as in create(), or a slab's. Refuses memory that is shorter.
  virtual Result<std::unique_ptr<SharedMemory>> import(int fd, int64_t bytes) = 0;
  // The NVLink clique within which our handles are good; empty: none.
  virtual std::string fabric() const { return {}; }
  virtual Result<std::unique_ptr<SharedMemory>> import_handle(const FabricHandle& handle,
                                                              int64_t bytes);
  Result<std::unique_ptr<SharedMemory>> import(const MemoryKey& key, int64_t bytes) {
    return key.handle ? import_handle(*key.handle, bytes) : import(key.fd.get(), bytes);
  }
  // To and from memory of the host; these wait.
  virtual Status read(void* host, const std::byte* from, int64_t bytes) = 0;
  virtual Status write(std::byte* to, const void* host, int64_t bytes) = 0;
  virtual std::unique_ptr<CopyQueue> make_queue(PollLoop& loop, CopyQueue::Done done) = 0;
  // Null: it has no streams (the host's).
  virtual std::unique_ptr<MarkedStream> make_marked_stream(MarkedStream::Passed passed) = 0;
  // For pools made of it. The two kinds of memory have digests of their own.
  virtual std::unique_ptr<PageHasher> make_hasher(std::vector<PagePool*> pools) = 0;
};

std::unique_ptr<HandoffMemory> make_host_handoff_memory();
// Of GPU `device`; `push_sms` as in KvTransferConfig; `clique`: HandoffMemory::fabric. Throws
// ConfigError or CudaError. Only in builds with CUDA.
std::unique_ptr<HandoffMemory> make_cuda_handoff_memory(int32_t device, int32_t push_sms = 0,
                                                        std::string clique = {});

}  // namespace baton
