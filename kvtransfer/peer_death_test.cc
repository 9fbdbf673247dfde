// Two processes: what D hears, and keeps, when the process that has its pages mapped is killed.
#include <sys/socket.h>
#include <sys/wait.h>

#include "kvtransfer/test_rig.h"
#include "kvtransfer/unix_socket.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr LinkId kLink = 3;

// The pushing process: attaches with the offer that it reads, pushes page 1 of group 0 into page 2,
// says so and waits to be killed.
[[noreturn]] void push_and_wait(int socket) {
  std::string blob(4096, '\0');
  blob.resize(static_cast<size_t>(std::max<ssize_t>(read(socket, blob.data(), blob.size()), 0)));
  SystemClock clock;
  TestEnd p({.transports = "mapped"}, clock);
  p.pools.fill(11);
  p.mover->attach(kLink, blob, long_lease());
  p.log.wait(MoverEvent::Kind::kAttached);
  p.mover->begin(1, kLink, 1);
  p.mover->push({{1, 0, 1, 2}});
  p.mover->finish(1, 0);
  p.log.wait(MoverEvent::Kind::kDone);
  const char done = 'd';
  [[maybe_unused]] const ssize_t put = write(socket, &done, 1);
  for (;;) pause();
}

}  // namespace

TEST_CASE(
    "a killed peer is proven dead, also after the link was forgotten, and its pages stay as they "
    "were") {
  for (const bool forget_first : {false, true}) {
    CAPTURE(forget_first);
    int sockets[2];
    REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    const ScopedFd ours(sockets[0]);
    ScopedFd theirs(sockets[1]);
    const pid_t child = fork();  // before there is any thread
    REQUIRE_GE(child, 0);
    if (child == 0) push_and_wait(theirs.get());
    theirs.reset();

    SystemClock clock;
    TestEnd d({.transports = "mapped"}, clock);
    const std::string blob = d.mover->offer(kLink);
    REQUIRE_EQ(write(ours.get(), blob.data(), blob.size()), static_cast<ssize_t>(blob.size()));
    char done = 0;
    REQUIRE_EQ(read(ours.get(), &done, 1), 1);
    TestPools expected;
    expected.fill(11);
    CHECK(same_page(expected, d.pools, {1, 0, 1, 2}));
    if (forget_first) d.mover->forget(kLink);
    CHECK(d.log.all().empty());
    REQUIRE_EQ(kill(child, SIGKILL), 0);
    CHECK_EQ(d.log.wait(MoverEvent::Kind::kPeerDead).link, kLink);
    CHECK(same_page(expected, d.pools, {1, 0, 1, 2}));
    REQUIRE_EQ(waitpid(child, nullptr, 0), child);
  }
}

}  // namespace baton
