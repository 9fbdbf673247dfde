// MarkedStream by host functions on a second stream, which follows the first by events: on the
// first they would hold up what is behind them.
#pragma once

#include "kernels/cuda/stream.h"
#include "kvtransfer/marked_stream.h"

namespace baton {

class CudaMarkedStream final : public MarkedStream {
 public:
  // `device` is current in the calling thread. Throws CudaError, as do its functions.
  CudaMarkedStream(int32_t device, Passed passed) : device_(device), passed_(std::move(passed)) {}
  ~CudaMarkedStream() override { drain(); }

  void* handle() const override { return work_.get(); }
  void use_in_this_thread() override { cuda_check(cudaSetDevice(device_), "handoff: device"); }
  void wait_for(void* event) override;
  void mark() override;
  void drain() noexcept override;

 private:
  static void CUDART_CB call_passed(void* self);

  const int32_t device_;
  const Passed passed_;
  CudaStream work_;
  CudaStream follower_;
  CudaEvent behind_work_;
};

}  // namespace baton
