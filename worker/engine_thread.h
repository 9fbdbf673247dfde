// The engine's own thread: computes the steps that the loop prepares, one after the other, and
// posts what came out. An engine that takes several steps at once gets the next one while it is
// still at the last. An engine that throws has failed for good: that is posted as a step's error
// and nothing is computed any more.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/linger.h"
#include "model/engine.h"

namespace baton {

// Where the loop hands its steps to. Implemented by EngineThread and by the test simulator.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Steps run in this order. The scheduler bounds how many are under way (scheduler.steps_ahead +
  // 1).
  virtual void submit(StepInput input) = 0;
};

class EngineThread final : public StepRunner {
 public:
  using Sink = std::function<void(StepOutput)>;

  // `engine` is used by this thread only, from now on; `sink` is called from it. `ending` (may be
  // empty) is called when a step with pushes that samples is about to end, from a thread of the
  // engine's; this thread then polls for `linger`.
  EngineThread(Engine& engine, Sink sink, std::function<void()> ending = {},
               std::chrono::microseconds linger = {});
  ~EngineThread() override;  // ends after the step in hand

  void submit(StepInput input) override;
  // The thread polls for so long instead of sleeping: a step is about to come. Any thread.
  void linger(std::chrono::microseconds duration);

 private:
  // What the thread does next: one of a step to begin, a step to collect, the end.
  struct Work {
    std::optional<StepInput> step;
    bool collect = false;
  };
  Work next_work(int32_t in_flight);
  void run();
  void compute();

  Engine& engine_;
  const Sink sink_;
  Linger linger_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepInput> steps_;       // guarded by mutex_
  int32_t done_ = 0;                  // guarded by mutex_: steps that collect() would not wait for
  bool closed_ = false;               // guarded by mutex_
  std::atomic<uint32_t> changes_{0};  // of the three above; written with mutex_ held
  std::thread thread_;
};

}  // namespace baton
