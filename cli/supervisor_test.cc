#include "cli/supervisor.h"

#include <csignal>
#include <ctime>

#include "tests/doctest.h"

using namespace baton;

namespace {

// Polls until `what` holds, at most ten seconds.
template <typename Predicate>
bool eventually(Supervisor& supervisor, Predicate what) {
  for (int i = 0; i < 1000; ++i) {
    supervisor.poll();
    if (what()) return true;
    const timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace

TEST_CASE("a child that is killed comes back, and stop leaves nobody") {
  const SystemClock clock;
  Supervisor supervisor({{"sleeper", {"/bin/sleep", "1000"}, "/dev/null"}}, clock);
  REQUIRE(eventually(supervisor, [&] { return supervisor.pid("sleeper") != 0; }));
  const pid_t first = supervisor.pid("sleeper");
  kill(first, SIGKILL);
  REQUIRE(eventually(supervisor, [&] {
    return supervisor.pid("sleeper") != 0 && supervisor.pid("sleeper") != first;
  }));
  const pid_t second = supervisor.pid("sleeper");
  supervisor.stop(2000);
  CHECK(supervisor.running() == 0);
  CHECK(kill(second, 0) == -1);
}

TEST_CASE("a child that cannot start makes it hopeless") {
  const SystemClock clock;
  Supervisor supervisor({{"broken", {"/nonexistent"}, "/dev/null"}}, clock);
  CHECK(eventually(supervisor, [&] { return supervisor.hopeless(); }));
}
