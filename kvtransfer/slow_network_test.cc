// tcp over a network that is slower than the measurement at attach was made for.
#include <arpa/inet.h>
#include <poll.h>

#include <thread>

#include "kvtransfer/tcp.h"
#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Passes one connection on to `target`, at about 1 MB/s towards it. Its own thread.
class SlowRelay {
 public:
  explicit SlowRelay(const SocketAddress& target)
      : target_(target), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(any);
    REQUIRE_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), bytes), 0);
    REQUIRE_EQ(listen(listener_.get(), 1), 0);
    REQUIRE_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &bytes), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(any.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  ~SlowRelay() {
    stop_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const std::string& address() const { return address_; }

 private:
  void run() {
    const ScopedFd near(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const ScopedFd far(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* to = reinterpret_cast<const sockaddr*>(&target_.storage);
    if (!near.valid() || connect(far.get(), to, target_.bytes) != 0) return;
    while (!stop_) {
      pollfd both[2] = {{.fd = near.get(), .events = POLLIN}, {.fd = far.get(), .events = POLLIN}};
      if (poll(both, 2, 50) < 0) return;
      char bytes[4096];
      if (both[1].revents != 0 && !pass(far, near, bytes, sizeof(bytes))) return;
      if (both[0].revents == 0) continue;
      if (!pass(near, far, bytes, sizeof(bytes))) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(4));
    }
  }
  static bool pass(const ScopedFd& from, const ScopedFd& to, char* bytes, size_t size) {
    const ssize_t got = recv(from.get(), bytes, size, 0);
    return got > 0 && send(to.get(), bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }

  const SocketAddress target_;
  const ScopedFd listener_;
  std::string address_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

std::string with_tcp_address(const std::string& blob, const std::string& address) {
  Offer offer = *decode_offer(blob);
  for (Offer::Endpoint& endpoint : offer.endpoints) endpoint.address = address;
  return encode_offer(offer);
}

}  // namespace

TEST_CASE("tcp: a slow network attaches with what it reaches, not with \"cannot connect\"") {
  SystemClock clock;
  TestEnd d({.transports = "tcp"}, clock), p({.transports = "tcp"}, clock);
  const std::string offer = d.mover->offer(9);
  const SlowRelay relay(*SocketAddress::parse(decode_offer(offer)->endpoints[0].address));
  p.mover->attach(7, with_tcp_address(offer, relay.address()), long_lease());
  const MoverEvent attached = p.log.wait_any();
  CAPTURE(attached.error);
  REQUIRE_EQ(attached.kind, MoverEvent::Kind::kAttached);
  CHECK_GT(attached.gbps, 0);
  CHECK_LT(attached.gbps, 0.02);
}

TEST_CASE("tcp: what is too slow for min_gbps is refused with both numbers") {
  SystemClock clock;
  TestEnd d({.transports = "tcp"}, clock), p({.transports = "tcp", .min_gbps = 0.5}, clock);
  const std::string offer = d.mover->offer(9);
  const SlowRelay relay(*SocketAddress::parse(decode_offer(offer)->endpoints[0].address));
  p.mover->attach(7, with_tcp_address(offer, relay.address()), long_lease());
  const std::string error = p.log.wait(MoverEvent::Kind::kAttachFailed).error;
  CHECK_NE(error.find("tcp: measured 0.00"), std::string::npos);
  CHECK_NE(error.find("want at least 0.5"), std::string::npos);
}

TEST_CASE("tcp: an address where nobody answers is named") {
  SystemClock clock;
  TestEnd d({.transports = "tcp"}, clock);
  TestEnd p({.transports = "tcp", .attach_timeout_ms = 300}, clock);
  // Accepts connections and says nothing.
  const ScopedFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t bytes = sizeof(any);
  REQUIRE_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&any), bytes), 0);
  REQUIRE_EQ(listen(silent.get(), 1), 0);
  REQUIRE_EQ(getsockname(silent.get(), reinterpret_cast<sockaddr*>(&any), &bytes), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(any.sin_port));
  p.mover->attach(7, with_tcp_address(d.mover->offer(9), address), long_lease());
  CHECK_EQ(p.log.wait(MoverEvent::Kind::kAttachFailed).error,
           "tcp: " + address + ": no answer to the hello in 300 ms");
}

}  // namespace baton
