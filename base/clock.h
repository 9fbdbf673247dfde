// Time as a part that is passed in, so that tests can turn the hands themselves.
#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Microseconds since an arbitrary start; never jumps back, counts while the machine sleeps
  // (CLOCK_BOOTTIME).
  virtual int64_t now_us() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t now_us() const override;
};

// For tests: stands still until told otherwise.
class FakeClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_.load(); }
  void advance_us(int64_t delta_us) { now_us_ += delta_us; }

 private:
  std::atomic<int64_t> now_us_{1'000'000};
};

int64_t unix_time_s();  // wall clock, only for timestamps that a person or client reads

}  // namespace baton
