#include "kvtransfer/copy_queue_cuda.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "kernels/cuda/memory.h"
#include "kvtransfer/probe.h"

namespace baton {
namespace {

constexpr int64_t kCopiesMax = 1 << 15;  // under way at once: two steps of 8k tokens and some
constexpr size_t kMarksMax = 1024;
constexpr size_t kBatchMax = 512;
constexpr int64_t kErrorLookMs = 200;
constexpr int32_t kMeasureRounds = 4;

bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kPushAlignmentBytes == 0;
}

}  // namespace

CudaCopyQueue::CudaCopyQueue(PollLoop& loop, int32_t push_sms, Done done)
    : loop_(loop), push_sms_(push_sms), done_(std::move(done)) {
  hook_ = loop.before_sleep([this] { return before_sleep(); });
}

CudaCopyQueue::~CudaCopyQueue() {
  hook_.reset();
  // Host functions use this object. Also when the context is lost: then nothing runs any more.
  cudaStreamSynchronize(copies_.get());
  cudaStreamSynchronize(follower_.get());
}

bool CudaCopyQueue::has_room() const {
  const int64_t under_way = started_ + std::ssize(sizes_) - reported_;
  return under_way < kCopiesMax && marks_.size() < kMarksMax;
}

bool CudaCopyQueue::copy(std::byte* dst, const std::byte* src, int64_t bytes, void* after) {
  if ((after != nullptr && after != after_) || sizes_.size() == kBatchMax) flush();
  if (after != nullptr && after != after_) {
    cuda_check(cudaStreamWaitEvent(copies_.get(), static_cast<cudaEvent_t>(after)),
               "push: wait for a layer");
    after_ = after;
  }
  dsts_.push_back(dst);
  srcs_.push_back(src);
  sizes_.push_back(static_cast<size_t>(bytes));
  return false;
}

void CudaCopyQueue::flush() {
  // The event may be recorded again: what comes later waits for it anew.
  const bool waits = std::exchange(after_, nullptr) != nullptr;
  if (sizes_.empty()) return;
  if (use_kernel_ && !waits) {
    enqueue_kernel();
  } else {
    enqueue_batch();
  }
  started_ += std::ssize(sizes_);
  dsts_.clear();
  srcs_.clear();
  sizes_.clear();
  behind_copies_.record(copies_.get());
  cuda_check(cudaStreamWaitEvent(follower_.get(), behind_copies_.get()), "follow the copies");
  marks_.push_back(started_);
  cuda_check(cudaLaunchHostFunc(follower_.get(), &passed, this), "follow the copies");
  if (marks_.size() == 1) look_for_errors();
}

void CudaCopyQueue::enqueue_batch() {
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  cuda_check(cudaMemcpyBatchAsync(dsts_.data(), srcs_.data(), sizes_.data(), sizes_.size(),
                                  &attributes, &first, 1, copies_.get()),
             "push slices");
}

void CudaCopyQueue::enqueue_kernel() {
  PushSlices slices;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    if (!is_aligned(dsts_[i]) || !is_aligned(srcs_[i]) || sizes_[i] % kPushAlignmentBytes != 0) {
      return enqueue_batch();  // what the kernel has taken of it is copied twice
    }
    const auto at = static_cast<size_t>(slices.count++);
    slices.src[at] = static_cast<const std::byte*>(srcs_[i]);
    slices.dst[at] = static_cast<std::byte*>(dsts_[i]);
    slices.units[at] = static_cast<uint32_t>(sizes_[i] / kPushAlignmentBytes);
    if (slices.count == kPushSlicesMax || i + 1 == sizes_.size()) {
      push_slices(slices, push_sms_, copies_.get());
      slices.count = 0;
    }
  }
}

// A thread of the driver's: no CUDA calls. Not called once the context is lost.
void CudaCopyQueue::passed(void* self) {
  auto* queue = static_cast<CudaCopyQueue*>(self);
  PollLoop& loop = queue->loop_;
  queue->passed_.fetch_add(1);
  loop.wake();
}

bool CudaCopyQueue::before_sleep() {
  flush();
  int64_t done = reported_;
  for (; passed_reported_ < passed_.load(); ++passed_reported_) {
    done = marks_.front();
    marks_.pop_front();
  }
  const int64_t copies = done - std::exchange(reported_, done);
  if (copies == 0) return true;
  if (marks_.empty()) error_timer_.reset();
  done_(copies);
  return false;  // what done_ was told must be looked at first
}

void CudaCopyQueue::look_for_errors() {
  const cudaError_t state = cudaStreamQuery(copies_.get());
  if (state != cudaErrorNotReady) cuda_check(state, "push slices");
  error_timer_ = loop_.after_ms(kErrorLookMs, [this] { look_for_errors(); });
}

// ---- measuring ----

// The copies of a round are enqueued while those of the one before run: what the host adds to an
// idle stream is left out, as it is behind a layer's event.
double CudaCopyQueue::measure_gbps(std::byte* target, const std::byte* source) {
  CudaEvent begin(true), end(true);
  for (int32_t round = 0; round <= kMeasureRounds; ++round) {
    for (int32_t i = 0; i < kProbeSlices; ++i) {
      dsts_.push_back(target + i * kProbeSliceBytes);
      srcs_.push_back(source);
      sizes_.push_back(kProbeSliceBytes);
    }
    use_kernel_ ? enqueue_kernel() : enqueue_batch();
    if (round == 0) begin.record(copies_.get());
    dsts_.clear();
    srcs_.clear();
    sizes_.clear();
  }
  end.record(copies_.get());
  copies_.synchronize();
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "measure the handoff");
  return gbps_of(kProbeSliceBytes * kProbeSlices * kMeasureRounds, double{ms} * 1e3);
}

double CudaCopyQueue::measure_latency_us(std::byte* target, const std::byte* source) {
  double latency_us = 1e9;
  for (int32_t i = 0; i < kProbePings; ++i) {
    const Stopwatch ping;
    cuda_check(cudaMemcpyAsync(target, source, 64, cudaMemcpyDeviceToDevice, copies_.get()),
               "measure the handoff");
    copies_.synchronize();
    latency_us = std::min(latency_us, ping.elapsed_us());
  }
  return latency_us;
}

Result<Measurement> CudaCopyQueue::measure(std::byte* target) {
  try {
    const DeviceBuffer source(kProbeSliceBytes);
    measure_gbps(target, source.data());  // the first use of a mapping is slower
    const double engines_gbps = measure_gbps(target, source.data());
    const double latency_us = measure_latency_us(target, source.data());
    if (push_sms_ == 0) return Measurement{engines_gbps, latency_us};
    use_kernel_ = true;
    const double kernel_gbps = measure_gbps(target, source.data());
    use_kernel_ = kernel_gbps > engines_gbps;
    log_info("push_measured", {{"copy_engines_gbps", engines_gbps},
                               {"kernel_gbps", kernel_gbps},
                               {"push_sms", push_sms_}});
    return Measurement{std::max(engines_gbps, kernel_gbps), latency_us};
  } catch (const CudaError& error) {
    return unavailable(error.what());
  }
}

}  // namespace baton
