#include "cli/supervisor.h"

#include <unistd.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>

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
  CHECK(eventually(supervisor, [&] { return !supervisor.hopeless().empty(); }));
  CHECK(supervisor.hopeless().find("nothing in its log") != std::string::npos);
}

TEST_CASE("why a child could not start was told in its log alone") {
  const SystemClock clock;
  const std::string log = std::filesystem::temp_directory_path() /
                          ("baton_supervisor_" + std::to_string(getpid()) + ".log");
  std::ofstream(log) << "an older run's line\n";
  Supervisor supervisor(
      {{"broken", {"/bin/sh", "-c", "echo first; echo port: in use; echo; exit 2"}, log}}, clock);
  std::vector<std::string> lines;
  for (; lines.empty(); usleep(1000)) lines = supervisor.poll();
  CHECK(lines.front() ==
        "broken exited with status 2, restarting in 100 ms: port: in use (" + log + ")");
  CHECK(eventually(supervisor, [&] { return !supervisor.hopeless().empty(); }));
  CHECK(supervisor.hopeless() == "broken keeps failing at its start: port: in use (" + log + ")");
  std::filesystem::remove(log);
}
