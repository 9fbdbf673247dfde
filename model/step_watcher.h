// Waits for the GPU so that the engine thread need not: tells the engine of each step's end, and a
// LayerSink that cannot wait for events itself that all layers are written. Its thread sleeps in
// the driver.
#pragma once

#include <chrono>
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
  bool told_layers = false;                         // the sink has been told by layers_enqueued
  CudaEvent before_logits = CudaEvent::sleeping();  // recorded if the step is `urgent`
  bool urgent = false;                              // its end is polled for
  CudaEvent end = CudaEvent(/*timing=*/true, /*sleeping=*/true);
  // Set by the watcher.
  int64_t end_seen_us = 0;  // as Clock counts, within microseconds; 0: the watcher slept
  std::string error;        // empty: the step was computed
  bool done = false;
};

// Steps end in the order in which they were watched.
class StepWatcher {
 public:
  // `device`: GPU number. `sink` may be null. Both callbacks come from the watcher's thread.
  // `linger_us`: longest time to poll for an urgent step's end.
  StepWatcher(int32_t device, int32_t num_layers, int64_t linger_us, LayerSink* sink);
  ~StepWatcher();  // after the steps that it has been given

  // Afterwards the callback that was set before is not under way and will not be called.
  void on_step_done(std::function<void()> notify);
  void on_step_ending(std::function<void()> notify);  // likewise, for urgent steps
  void notify();  // calls it here and now, for a step that failed before it could be watched
  void watch(WatchedStep* step);       // its events have been recorded
  void wait(const WatchedStep& step);  // until it is done

 private:
  void run();
  void follow(WatchedStep& step);
  void poll_for_end(WatchedStep& step);

  const int32_t device_;
  const int32_t num_layers_;
  const std::chrono::microseconds linger_;
  LayerSink* const sink_;
  std::mutex notify_mutex_;              // held while the callback runs
  std::function<void()> notify_;         // guarded by notify_mutex_
  std::function<void()> notify_ending_;  // guarded by notify_mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WatchedStep*> steps_;  // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
