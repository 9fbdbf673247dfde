#include "worker/engine_thread.h"

#include "base/check.h"

namespace baton {

namespace {
constexpr size_t kStepsMax = 16;  // far above scheduler.steps_ahead + 1
}

EngineThread::EngineThread(Engine& engine, Sink sink)
    : engine_(engine), sink_(std::move(sink)), steps_(kStepsMax), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  steps_.close();
  thread_.join();
}

void EngineThread::submit(StepInput input) {
  CHECK(steps_.try_push(std::move(input))) << "more than " << kStepsMax << " steps under way";
}

void EngineThread::run() {
  while (auto step = steps_.pop()) {
    if (steps_.closed()) return;  // shutting down: nobody waits for what is queued
    sink_(engine_.execute(*step));
  }
}

}  // namespace baton
