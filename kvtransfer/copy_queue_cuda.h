// The CopyQueue of a GPU: copies on a stream of their own, each behind the event of the layers that
// it waits for, so that the GPU goes from their KV writes to the copies without the host. Copies
// travel to the driver in batches (cudaMemcpyBatchAsync: 0.6 us of host time a slice). What has
// completed is learnt from host functions on a second stream, which follows the first by events:
// on the first they would hold up the copies behind them. Handoff thread only.
#pragma once

#include <atomic>
#include <deque>
#include <vector>

#include "kernels/cuda/stream.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/push_kernel.h"

namespace baton {

class CudaCopyQueue final : public CopyQueue {
 public:
  // `push_sms`: of a kernel that may take the copies that wait for nothing; 0: none. The GPU is
  // current in the calling thread.
  CudaCopyQueue(PollLoop& loop, int32_t push_sms, Done done);
  ~CudaCopyQueue() override;

  bool has_room() const override;
  bool copy(std::byte* dst, const std::byte* src, int64_t bytes, void* after) override;
  Result<Measurement> measure(std::byte* target) override;

 private:
  void flush();
  void enqueue_batch();
  void enqueue_kernel();
  double measure_gbps(std::byte* target, const std::byte* source);
  double measure_latency_us(std::byte* target, const std::byte* source);
  bool before_sleep();
  void look_for_errors();
  static void CUDART_CB passed(void* self);

  PollLoop& loop_;
  const int32_t push_sms_;
  const Done done_;
  bool use_kernel_ = false;  // measured to be faster
  CudaStream copies_;
  CudaStream follower_;
  CudaEvent behind_copies_;

  // The batch that is being gathered, behind the event `after_`.
  std::vector<void*> dsts_;
  std::vector<const void*> srcs_;
  std::vector<size_t> sizes_;
  void* after_ = nullptr;

  int64_t started_ = 0;             // given to the driver
  int64_t reported_ = 0;            // of them, to done_
  std::deque<int64_t> marks_;       // value of started_ at each host function that is not reported
  std::atomic<int64_t> passed_{0};  // host functions that have run
  int64_t passed_reported_ = 0;
  PollLoop::Watch hook_;
  PollLoop::Watch error_timer_;
};

}  // namespace baton
