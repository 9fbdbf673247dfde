// The engine's own thread: computes the steps that the loop prepares, one after the other, and
// posts what came out.
#pragma once

#include <functional>
#include <thread>

#include "base/bounded_queue.h"
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

  // `engine` is used by this thread only, from now on; `sink` is called from it.
  EngineThread(Engine& engine, Sink sink);
  ~EngineThread() override;  // ends after the step in hand

  void submit(StepInput input) override;

 private:
  void run();

  Engine& engine_;
  const Sink sink_;
  BoundedQueue<StepInput> steps_;
  std::thread thread_;
};

}  // namespace baton
