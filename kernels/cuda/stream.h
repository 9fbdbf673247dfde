// Streams and events, owned by type. A stream belongs to one thread at a time.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/error.h"

namespace baton {

class CudaEvent {
 public:
  // Without timing events are cheaper; `timing` is for benchmarks. A thread that waits for an event
  // spins, or sleeps if it is `sleeping`.
  explicit CudaEvent(bool timing = false, bool sleeping = false) {
    const unsigned flags = (timing ? cudaEventDefault : cudaEventDisableTiming) |
                           (sleeping ? cudaEventBlockingSync : cudaEventDefault);
    cuda_check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  static CudaEvent sleeping() { return CudaEvent(false, true); }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) { cuda_check(cudaEventRecord(event_, stream), "event record"); }
  void synchronize() { cuda_check(cudaEventSynchronize(event_), "event wait"); }
  // False while work before the record is still running.
  bool done() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    cuda_check(state, "event query");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaStream {
 public:
  CudaStream() {
    cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const { return stream_; }
  void synchronize() { cuda_check(cudaStreamSynchronize(stream_), "stream wait"); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace baton
