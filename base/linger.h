// A thread that is about to be needed polls for a bounded while instead of sleeping: to wake a
// thread takes 40 to 100 us in a virtual machine whose processor has gone idle. start(): any
// thread; the one that polls has to be awake, or woken, to see it. It does not yield: beside a task
// that computes, that gives away milliseconds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace baton {

class Linger {
 public:
  void start(std::chrono::microseconds duration) {
    until_ = (Clock::now() + duration).time_since_epoch().count();
  }
  bool on() const {
    const Clock::rep until = until_.load(std::memory_order_relaxed);
    return until != 0 && Clock::now().time_since_epoch().count() < until;
  }
  // Until `ready()`, which takes no lock (whoever brings the news would sleep on it), or the time
  // is over: false.
  template <typename Ready>
  bool poll(Ready ready) const {
    while (!ready()) {
      if (!on()) return false;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("isb" ::: "memory");
#endif
    }
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::rep> until_{0};
};

}  // namespace baton
