#include "worker/engine_thread.h"

#include <exception>
#include <utility>

#include "base/check.h"

namespace baton {

namespace {
// The scheduler gives out scheduler.steps_ahead + 1 at most before it has a result: more here are a
// bug, not load.
constexpr size_t kStepsMax = 16;
}  // namespace

EngineThread::EngineThread(Engine& engine, Sink sink, std::function<void()> ending,
                           std::chrono::microseconds linger)
    : engine_(engine), sink_(std::move(sink)) {
  engine_.on_step_ending([this, ending = std::move(ending), linger] {
    this->linger(linger);
    if (ending) ending();
  });
  engine_.on_step_done([this] {
    {
      std::lock_guard lock(mutex_);
      ++done_;
      ++changes_;
    }
    changed_.notify_one();
  });
  thread_ = std::thread([this] { run(); });
}

EngineThread::~EngineThread() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ++changes_;
  }
  changed_.notify_one();
  thread_.join();
  engine_.on_step_done({});
  engine_.on_step_ending({});
}

void EngineThread::submit(StepInput input) {
  {
    std::lock_guard lock(mutex_);
    CHECK_LT(steps_.size(), kStepsMax) << "steps under way";
    steps_.push_back(std::move(input));
    ++changes_;
  }
  changed_.notify_one();
}

void EngineThread::linger(std::chrono::microseconds duration) {
  linger_.start(duration);
  {
    std::lock_guard lock(mutex_);  // the thread sees it, or is waiting already
  }
  changed_.notify_one();
}

// Outputs go before new steps: the loop waits for them to prepare the next.
EngineThread::Work EngineThread::next_work(int32_t in_flight) {
  const bool may_wait = in_flight == engine_.steps_in_flight_max();
  const bool tells = engine_.steps_in_flight_max() > 1;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (closed_) return {};
    if (in_flight > 0 && (done_ > 0 || (may_wait && !tells))) {
      if (tells) --done_;
      return {.collect = true};
    }
    if (!may_wait && !steps_.empty()) {
      Work work{.step = std::move(steps_.front())};
      steps_.pop_front();
      return work;
    }
    if (linger_.on()) {
      const uint32_t seen = changes_;
      lock.unlock();
      linger_.poll([&] { return changes_ != seen; });
      lock.lock();
    } else {
      changed_.wait(lock);
    }
  }
}

void EngineThread::run() {
  try {
    compute();
  } catch (const std::exception& error) {
    sink_({.error = error.what()});
  }
}

void EngineThread::compute() {
  for (int32_t in_flight = 0;;) {
    Work work = next_work(in_flight);
    if (work.step) {
      engine_.submit(std::move(*work.step));
      ++in_flight;
    } else if (work.collect) {
      sink_(engine_.collect());
      --in_flight;
    } else {
      // Shutting down: nobody waits for what is queued. What is in flight still tells its layers.
      for (; in_flight > 0; --in_flight) engine_.collect();
      return;
    }
  }
}

}  // namespace baton
