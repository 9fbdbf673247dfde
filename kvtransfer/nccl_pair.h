// One end of a pair's communicator: P's sends or D's receives, group after group in one order. All
// calls of NCCL come from a thread of its own, which sleeps between them, because some take long
// (making, ending) and none may hold up the handoff thread; what happens is told on the handoff
// thread, which calls all public functions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/scoped_fd.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/marked_stream.h"
#include "kvtransfer/nccl_api.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

class NcclPair {
 public:
  struct Events {                                // called from PollLoop::poll
    std::function<void(const NcclId&)> made_id;  // of the sender, which makes it
    std::function<void()> ready;                 // the communicator works
    std::function<void(int64_t groups)> moved;   // so many of the oldest have ended
    std::function<void(const Status&)> broken;   // nothing more is told but `ended`, after end()
    std::function<void()> ended;                 // the pair may be destroyed in it
  };
  struct Spec {
    NcclRank rank = NcclRank::kSender;
    std::optional<NcclId> id;  // of the receiver: the sender's
    int32_t ctas = 0;
    int64_t end_timeout_ms = 0;
  };

  // `memory` makes the stream. `scratch` (may be null) is let go of at the end, by the pair's
  // thread: freeing memory waits for the GPU's kernels, and another pair's may hang. Throws
  // CudaError.
  NcclPair(std::shared_ptr<const NcclApi> api, HandoffMemory& memory, PollLoop& loop,
           const Spec& spec, std::unique_ptr<SharedMemory> scratch, Events events);
  ~NcclPair();  // ends what is under way; waits unless `ended` has been told

  // A group, behind those before. REQUIRES: ready.
  void move(std::vector<NcclMove> group);
  // Ends what is under way (ncclCommAbort), also where the peer is gone or stands still; then
  // `ended`: no memory is read or written any more. Does not wait. After end_timeout_ms without
  // that PollLoop::poll throws: only the end of the process gives back what hangs.
  void end();

 private:
  struct News {
    std::optional<NcclId> id;
    bool ready = false;
    std::optional<Status> broken;
    std::exception_ptr failure;  // of the GPU: the handoff thread's to die of
    bool ended = false;
  };

  void run();
  Status work();
  Status settle();
  void finish();
  template <typename Change>
  void tell(Change change);
  void notify();
  void dispatch();

  const std::shared_ptr<const NcclApi> api_;
  PollLoop& loop_;
  const Spec spec_;
  const Events events_;
  const ScopedFd wake_;  // an eventfd: there is news
  std::atomic<int64_t> moved_{0};
  std::atomic<bool> ending_{false};
  const std::unique_ptr<MarkedStream> stream_;

  std::mutex mutex_;
  std::condition_variable changed_;  // jobs_ or ending_
  std::deque<std::vector<NcclMove>> jobs_;
  News news_;

  NcclComm comm_ = nullptr;  // thread_'s, as are the next two
  std::unique_ptr<SharedMemory> scratch_;
  bool lost_ = false;  // the GPU's context: no more calls
  PollLoop::Watch watch_;
  PollLoop::Watch end_timeout_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
