// A stream of a GPU whose progress is told, so that nobody waits for it: what transport "nccl"
// enqueues its kernels on (nccl_pair.h) and follows layers' events by (nccl_route.h). Made by
// HandoffMemory. One thread at a time.
#pragma once

#include <functional>

namespace baton {

class MarkedStream {
 public:
  // Called on a thread of the driver's, in the order of the marks: no CUDA calls, no waiting.
  using Passed = std::function<void()>;

  virtual ~MarkedStream() = default;       // waits as drain() does
  virtual void* handle() const = 0;        // a cudaStream_t
  virtual void use_in_this_thread() = 0;   // makes its GPU the calling thread's
  virtual void wait_for(void* event) = 0;  // what comes behind it starts after this cudaEvent_t
  virtual void mark() = 0;                 // Passed follows once all before it has ended
  virtual void drain() noexcept = 0;       // waits until all before it has ended
};

}  // namespace baton
