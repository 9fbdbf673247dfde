#include "kvtransfer/marked_stream_cuda.h"

namespace baton {

void CudaMarkedStream::wait_for(void* event) {
  cuda_check(cudaStreamWaitEvent(work_.get(), static_cast<cudaEvent_t>(event)),
             "push: wait for a layer");
}

void CudaMarkedStream::mark() {
  behind_work_.record(work_.get());
  cuda_check(cudaStreamWaitEvent(follower_.get(), behind_work_.get()), "follow a stream");
  cuda_check(cudaLaunchHostFunc(follower_.get(), call_passed, this), "follow a stream");
}

// Also when the context is lost: then nothing runs any more.
void CudaMarkedStream::drain() noexcept {
  cudaStreamSynchronize(work_.get());
  cudaStreamSynchronize(follower_.get());
}

void CudaMarkedStream::call_passed(void* self) {
  static_cast<CudaMarkedStream*>(self)->passed_();
}

}  // namespace baton
