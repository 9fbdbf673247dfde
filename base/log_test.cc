#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/scoped_fd.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Puts something else in the place of stderr for the time of a test, and lets everything through.
class StderrTo {
 public:
  explicit StderrTo(int fd) : before_(::dup(STDERR_FILENO)) {
    set_log_level(LogLevel::kInfo);  // whatever the tests before have left
    ::dup2(fd, STDERR_FILENO);
  }
  ~StderrTo() { ::dup2(before_.get(), STDERR_FILENO); }

 private:
  const ScopedFd before_;
};

TEST_CASE("a line is time, level, event and its fields") {
  CHECK(format_log_line(1'700'000'000'042, LogLevel::kInfo, "link_up",
                        {{"peer", "10.0.0.2:7100"}, {"n", 3}, {"share", 0.5}, {"ok", true}}) ==
        "2023-11-14T22:13:20.042Z info link_up peer=10.0.0.2:7100 n=3 share=0.5 ok=true");
}

TEST_CASE("what a stranger sent stays on one line") {
  CHECK(
      format_log_line(0, LogLevel::kWarn, "refused", {{"why", "a\"b\n\x01 c=d"}, {"empty", ""}}) ==
      "1970-01-01T00:00:00.000Z warn refused why=\"a\\\"b\\n\\u0001 c=d\" empty=\"\"");
}

TEST_CASE("a full disk loses lines and nothing else") {
  const ScopedFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  REQUIRE(full.valid());
  const StderrTo redirected(full.get());
  log_info("into_the_void");
}

TEST_CASE("a pipe that nobody reads does not stop whoever logs; the lost lines are counted") {
  int fds[2];
  REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
  const ScopedFd reader(fds[0]);
  const ScopedFd writer(fds[1]);
  const StderrTo redirected(writer.get());
  const int capacity = ::fcntl(writer.get(), F_GETPIPE_SZ);
  const std::string text(1000, 'x');
  const int lines = 2 * capacity / 1000;
  for (int i = 0; i < lines; ++i) log_info("much", {{"text", text}});

  std::string read;
  std::array<char, 65536> bytes;
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  const auto take = [&] {
    for (ssize_t n = 0; (n = ::read(reader.get(), bytes.data(), bytes.size())) > 0;)
      read.append(bytes.data(), static_cast<size_t>(n));
  };
  take();
  int arrived = 0;
  for (size_t at = 0; (at = read.find(" info much ", at)) != std::string::npos; ++at) ++arrived;
  CHECK(arrived > 0);
  CHECK(arrived < lines);
  read.clear();
  log_info("after");
  take();
  const std::string count = "log_lines_lost count=" + std::to_string(lines - arrived);
  CHECK(read.find(count) != std::string::npos);
  CHECK(read.find("info after\n") != std::string::npos);
}

TEST_CASE("a very long line is cut, not split") {
  int fds[2];
  REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
  const ScopedFd reader(fds[0]);
  const ScopedFd writer(fds[1]);
  const StderrTo redirected(writer.get());
  log_info("long", {{"text", std::string(20'000, 'x')}});
  std::array<char, 65536> bytes;
  const ssize_t n = ::read(reader.get(), bytes.data(), bytes.size());
  CHECK(n == 4096);
  CHECK(bytes[4095] == '\n');
}

}  // namespace
}  // namespace baton
