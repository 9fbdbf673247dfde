#include "model/step_watcher.h"

#include <utility>

#include "base/clock.h"
#include "base/linger.h"
#include "kernels/cuda/error.h"

namespace baton {

StepWatcher::StepWatcher(int32_t device, int32_t num_layers, int64_t linger_us, LayerSink* sink)
    : device_(device), num_layers_(num_layers), linger_(linger_us), sink_(sink), thread_([this] {
        run();
      }) {}

StepWatcher::~StepWatcher() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StepWatcher::on_step_done(std::function<void()> notify) {
  std::lock_guard lock(notify_mutex_);
  notify_ = std::move(notify);
}

void StepWatcher::on_step_ending(std::function<void()> notify) {
  std::lock_guard lock(notify_mutex_);
  notify_ending_ = std::move(notify);
}

void StepWatcher::notify() {
  std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

void StepWatcher::watch(WatchedStep* step) {
  {
    std::lock_guard lock(mutex_);
    step->done = false;
    step->error.clear();
    step->end_seen_us = 0;
    steps_.push_back(step);
  }
  changed_.notify_all();
}

void StepWatcher::wait(const WatchedStep& step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return step.done; });
}

void StepWatcher::run() {
  cudaSetDevice(device_);  // cannot fail: the engine has made its context
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closed_ || !steps_.empty(); });
    if (steps_.empty()) return;
    WatchedStep& step = *steps_.front();
    lock.unlock();
    std::string error;
    try {
      follow(step);
    } catch (const CudaError& failure) {
      error = failure.what();
    }
    lock.lock();
    step.error = std::move(error);
    step.done = true;
    steps_.pop_front();
    changed_.notify_all();
    lock.unlock();
    notify();
    lock.lock();
  }
}

// A sleeping thread hears of an event 50 us late and more. The logits take a fraction of a
// millisecond: time to be awake at the end.
void StepWatcher::poll_for_end(WatchedStep& step) {
  step.before_logits.synchronize();
  {
    std::lock_guard lock(notify_mutex_);
    if (notify_ending_) notify_ending_();
  }
  Linger linger;
  linger.start(linger_);
  if (linger.poll([&] { return step.end.done(); })) step.end_seen_us = SystemClock().now_us();
}

void StepWatcher::follow(WatchedStep& step) {
  if (step.urgent) poll_for_end(step);
  step.end.synchronize();
  if (sink_ == nullptr || step.told_layers) return;
  for (int32_t layer = 0; layer < num_layers_; ++layer) sink_->layer_written(*step.input, layer);
}

}  // namespace baton
