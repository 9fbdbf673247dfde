#include "worker/engine_thread.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

// Takes `in_flight_max` steps at once; a step is done when the test says so.
class ManualEngine final : public Engine {
 public:
  explicit ManualEngine(int32_t in_flight_max) : in_flight_max_(in_flight_max) {}

  int32_t steps_in_flight_max() const override { return in_flight_max_; }
  void submit(StepInput input) override {
    std::lock_guard lock(mutex_);
    submitted_.push_back(input.step);
    changed_.notify_all();
  }
  StepOutput collect() override {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw std::runtime_error(failure_);
    return {.step = submitted_.at(collected_++)};
  }
  void on_step_done(std::function<void()> notify) override { notify_ = std::move(notify); }
  void on_step_ending(std::function<void()> notify) override { ending_ = std::move(notify); }

  void wait_submitted(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return submitted_.size() >= count; });
  }
  size_t submitted() {
    std::lock_guard lock(mutex_);
    return submitted_.size();
  }
  void finish_step() { notify_(); }
  void near_end() { ending_(); }
  void fail_next(const std::string& failure) {
    std::lock_guard lock(mutex_);
    failure_ = failure;
  }

 private:
  const int32_t in_flight_max_;
  std::function<void()> notify_, ending_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> submitted_;
  size_t collected_ = 0;
  std::string failure_;
};

}  // namespace

TEST_CASE("the next step reaches an engine of two steps while it computes the last one") {
  ManualEngine engine(2);
  BoundedQueue<uint64_t> outputs(16);
  EngineThread thread(engine, [&](const StepOutput& output) {
    uint64_t step = output.step;
    REQUIRE(outputs.try_push(std::move(step)));
  });
  thread.submit({.step = 1});
  engine.wait_submitted(1);
  thread.submit({.step = 2});  // the engine thread waits for step 1 by now, or will
  engine.wait_submitted(2);
  thread.submit({.step = 3});
  CHECK(outputs.size() == 0);
  engine.finish_step();
  CHECK(outputs.pop() == 1);
  engine.wait_submitted(3);
  engine.finish_step();
  engine.finish_step();
  CHECK(outputs.pop() == 2);
  CHECK(outputs.pop() == 3);
}

TEST_CASE("a step that is about to end is told of, and taken by a thread that does not sleep") {
  ManualEngine engine(2);
  BoundedQueue<uint64_t> outputs(16);
  int told = 0;
  EngineThread thread(
      engine,
      [&](const StepOutput& output) {
        uint64_t step = output.step;
        REQUIRE(outputs.try_push(std::move(step)));
      },
      [&] { ++told; }, std::chrono::milliseconds(20));
  for (uint64_t step = 1; step <= 3; ++step) {
    thread.submit({.step = step});
    engine.wait_submitted(step);
    engine.near_end();
    CHECK(told == static_cast<int>(step));
    if (step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(40));  // it sleeps again
    engine.finish_step();
    CHECK(outputs.pop() == step);
  }
}

TEST_CASE("a thread that polls sees a step, a step's end and its own end at once") {
  ManualEngine engine(2);
  BoundedQueue<uint64_t> outputs(16);
  EngineThread thread(engine, [&](const StepOutput& output) {
    uint64_t step = output.step;
    REQUIRE(outputs.try_push(std::move(step)));
  });
  thread.linger(std::chrono::minutes(10));
  for (uint64_t step = 1; step <= 50; ++step) {
    thread.submit({.step = step});
    engine.wait_submitted(step);
    engine.finish_step();
    CHECK(outputs.pop() == step);
  }
}

TEST_CASE("an engine of one step gets the next when the last has been collected") {
  ManualEngine engine(1);
  BoundedQueue<uint64_t> outputs(16);
  EngineThread thread(engine, [&](const StepOutput& output) {
    CHECK(engine.submitted() == output.step);
    uint64_t step = output.step;
    REQUIRE(outputs.try_push(std::move(step)));
  });
  for (uint64_t step = 1; step <= 3; ++step) thread.submit({.step = step});
  for (uint64_t step = 1; step <= 3; ++step) CHECK(outputs.pop() == step);
}

TEST_CASE("ending collects what is in flight, so that the engine is idle afterwards") {
  ManualEngine engine(2);
  int collected = 0;
  {
    EngineThread thread(engine, [&](const StepOutput&) { ++collected; });
    thread.submit({.step = 1});
    engine.wait_submitted(1);
  }
  CHECK(collected == 0);  // nobody is told any more
  CHECK_THROWS(engine.collect());
}

TEST_CASE("what an engine throws is the error of a step, and the last thing that it does") {
  for (const int32_t in_flight_max : {1, 2}) {
    ManualEngine engine(in_flight_max);
    BoundedQueue<std::string> errors(16);
    {
      EngineThread thread(engine, [&](const StepOutput& output) {
        std::string error = output.error;
        REQUIRE(errors.try_push(std::move(error)));
      });
      engine.fail_next("rope_kv: an illegal memory access was encountered");
      thread.submit({.step = 1});
      if (in_flight_max > 1) {
        engine.wait_submitted(1);
        engine.finish_step();
      }
      CHECK(errors.pop() == "rope_kv: an illegal memory access was encountered");
      thread.submit({.step = 2});
    }
    CHECK(engine.submitted() == 1);
    CHECK(errors.size() == 0);
  }
}
