#include "model/step_watcher.h"

#include <utility>

#include "kernels/cuda/error.h"

namespace baton {

StepWatcher::StepWatcher(int32_t device, int32_t num_layers, LayerSink* sink)
    : device_(device), num_layers_(num_layers), sink_(sink), thread_([this] { run(); }) {}

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

void StepWatcher::notify() {
  std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

void StepWatcher::watch(WatchedStep* step) {
  {
    std::lock_guard lock(mutex_);
    step->done = false;
    step->error.clear();
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

void StepWatcher::follow(WatchedStep& step) {
  const auto tell = [&](int32_t layer) {
    if (sink_ != nullptr && !step.told_layers) sink_->layer_written(*step.input, layer);
  };
  if (step.watch_layers && !step.told_layers) {
    for (int32_t layer = 0; layer < num_layers_; ++layer) {
      step.layers[static_cast<size_t>(layer)].synchronize();
      tell(layer);
    }
  }
  step.end.synchronize();
  if (!step.watch_layers) {
    for (int32_t layer = 0; layer < num_layers_; ++layer) tell(layer);
  }
}

}  // namespace baton
