// A stopped and continued process (SIGSTOP, SIGCONT), with a real one.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/link.h"
#include "base/link_testing.h"
#include "base/scoped_fd.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// The child: dials the parent, and on each link says how many messages it has ever been given. Ends
// when `life` closes.
[[noreturn]] void run_child(int port_from, int life) {
  int32_t port = 0;
  if (::read(port_from, &port, sizeof port) != sizeof port) _exit(1);
  SystemClock clock;
  PeerInfo self;
  self.worker_id = "child";
  self.epoch = 5;
  std::atomic<uint64_t> received{0};
  Links* links = nullptr;
  Links own(Node::short_lease(), self, "", clock, [&](const LinkEvent& event) {
    if (std::holds_alternative<LinkMessage>(event)) ++received;
    if (const auto* up = std::get_if<LinkUp>(&event)) links->send(up->link, Ack{received, true});
  });
  links = &own;
  own.connect("127.0.0.1:" + std::to_string(port));
  char end = 0;
  [[maybe_unused]] const ssize_t n = ::read(life, &end, 1);
  _exit(0);
}

struct Pipe {
  Pipe() {
    int fds[2];
    REQUIRE(::pipe(fds) == 0);
    read_end = ScopedFd(fds[0]);
    write_end = ScopedFd(fds[1]);
  }
  ScopedFd read_end, write_end;
};

TEST_CASE("a stopped process is given up, and continued it starts afresh, without old messages") {
  Pipe port_pipe, life;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    life.write_end.reset();
    run_child(port_pipe.read_end.get(), life.read_end.get());
  }
  Node parent("parent", 1, Node::short_lease());
  const int32_t port = parent.links->port();
  REQUIRE(::write(port_pipe.write_end.get(), &port, sizeof port) == sizeof port);
  const auto first = parent.wait<LinkUp>();
  CHECK((parent.wait<LinkMessage>().message == Message(Ack{0, true})));

  REQUIRE(::kill(child, SIGSTOP) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);  // it stands
  parent.links->send(first.link, Release{1});              // lies in its socket when it wakes
  const auto down = parent.wait<LinkDown>();
  CHECK(down.link == first.link);
  CAPTURE(down.reason);
  // A busy machine may have stopped the parent as well.
  CHECK((down.reason.find("peer silent for") == 0 ||
         down.reason.find("this process stood still") == 0));
  // It stopped somewhere inside the lease that the parent counted; stand for a whole one.
  std::this_thread::sleep_for(std::chrono::milliseconds(Node::short_lease().lease_ms));
  REQUIRE(::kill(child, SIGCONT) == 0);

  CHECK(parent.wait<LinkUp>().link != first.link);
  const Message again = parent.wait<LinkMessage>().message;
  REQUIRE(std::holds_alternative<Ack>(again));
  CHECK(std::get<Ack>(again).slot_gen == 0);
  life.write_end.reset();
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace baton
