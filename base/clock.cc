#include "base/clock.h"

#include <ctime>

namespace baton {

int64_t SystemClock::now_us() const {
  timespec ts{};
  clock_gettime(CLOCK_BOOTTIME, &ts);
  return ts.tv_sec * 1'000'000LL + ts.tv_nsec / 1000;
}

int64_t unix_time_s() {
  return std::time(nullptr);
}

}  // namespace baton
