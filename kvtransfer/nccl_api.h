// What transport "nccl" uses of NCCL: communicators of two ranks that never block their caller
// (ncclConfig_t.blocking = 0). A seam: the real one is loaded at first use, tests have their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace baton {

using NcclComm = void*;                // ncclComm_t
using NcclId = std::array<char, 128>;  // ncclUniqueId: says where rank 0 listens

enum class NcclRank : uint8_t { kSender = 0, kReceiver = 1 };

struct NcclMove {
  std::byte* at = nullptr;  // GPU memory: read by the sender, written by the receiver
  int64_t bytes = 0;
};

// Any thread; the calls for one communicator come from one.
class NcclApi {
 public:
  virtual ~NcclApi() = default;
  virtual Result<NcclId> make_id() const = 0;
  // Begins to make a communicator on the calling thread's GPU. Its kernels take at most `ctas`
  // multiprocessors. `comm` may be set also when it fails: abort() it.
  virtual Status begin(NcclComm* comm, const NcclId& id, NcclRank rank, int32_t ctas) const = 0;
  // False: what was begun or enqueued is not done on the host yet; ask again, call nothing else.
  // kUnavailable: the communicator is broken, only abort() is left.
  virtual Result<bool> settled(NcclComm comm) const = 0;
  // Enqueues sends to, or receives from, the other rank, as one group. settled() follows.
  virtual Status enqueue(NcclComm comm, NcclRank rank, std::span<const NcclMove> moves,
                         void* stream) const = 0;
  // Ends its kernels, whatever the other rank does, and frees it. May wait.
  virtual void abort(NcclComm comm) const = 0;
};

// Loads libnccl.so.2, for the rest of the process. kUnavailable: it is not installed, or older than
// 2.18. At start-up, by one thread.
Result<std::shared_ptr<const NcclApi>> load_nccl();

}  // namespace baton
