// Waits for the GPU so that the engine thread need not: tells the LayerSink of each layer's KV
// write and the engine of each step's end. Its thread sleeps in the driver.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/stream.h"
#include "model/engine.h"

namespace baton {

// A step on its way, from its being enqueued until done(). Borrowed by the watcher meanwhile.
struct WatchedStep {
  const StepInput* input = nullptr;
  // Recorded behind each layer's KV write; [num_layers], or empty: all are told at the end.
  std::vector<CudaEvent> layers;
  bool watch_layers = false;
  bool told_layers = false;  // the sink has been told by layers_enqueued
  CudaEvent end = CudaEvent::sleeping();
  // Set by the watcher.
  std::string error;  // empty: the step was computed
  bool done = false;
};

// Steps end in the order in which they were watched.
class StepWatcher {
 public:
  // `device`: GPU number. `sink` may be null. Both callbacks come from the watcher's thread.
  StepWatcher(int32_t device, int32_t num_layers, LayerSink* sink);
  ~StepWatcher();  // after the steps that it has been given

  // Afterwards the callback that was set before is not under way and will not be called.
  void on_step_done(std::function<void()> notify);
  void notify();  // calls it here and now, for a step that failed before it could be watched
  void watch(WatchedStep* step);       // its events have been recorded
  void wait(const WatchedStep& step);  // until it is done

 private:
  void run();
  void follow(WatchedStep& step);

  const int32_t device_;
  const int32_t num_layers_;
  LayerSink* const sink_;
  std::mutex notify_mutex_;  // held while the callback runs
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WatchedStep*> steps_;  // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
