// What a stranger or a broken peer sends to D's sockets: never a crash, never a byte in a page that
// is not granted.
#include <poll.h>
#include <sys/mman.h>

#include <deque>

#include "kvtransfer/mapped.h"
#include "kvtransfer/tcp.h"
#include "kvtransfer/test_rig.h"
#include "kvtransfer/ucx.h"
#include "kvtransfer/unix_socket.h"
#include "kvtransfer/wire.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// D with an offer for link 9, and a raw socket to one of its listeners.
struct Target {
  Target() : d({.transports = "mapped,tcp,ucx"}, clock), offer(*decode_offer(d.mover->offer(9))) {}

  ScopedFd connect_tcp() const {
    const SocketAddress address = *SocketAddress::parse(offer.endpoints[1].address);
    ScopedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE_EQ(
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes), 0);
    return fd;
  }
  ScopedFd connect_mapped() const {
    Result<ScopedFd> fd = connect_unix(offer.endpoints[0].address);
    REQUIRE(fd.ok());
    return std::move(*fd);
  }
  SystemClock clock;
  TestEnd d;
  Offer offer;
};

void send_all(const ScopedFd& fd, const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t sent = send(fd.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent <= 0) return;  // closed already
    at += static_cast<size_t>(sent);
  }
}

// Waits for the other end's close, reading what comes before; false after 10 s.
bool closed_by_peer(const ScopedFd& fd) {
  for (;;) {
    pollfd one{.fd = fd.get(), .events = POLLIN};
    if (poll(&one, 1, 10'000) != 1) return false;
    char byte = 0;
    if (recv(fd.get(), &byte, 1, 0) <= 0) return true;
  }
}

std::string tcp_hello(const Nonce& nonce, uint16_t version = kTcpVersion) {
  WireWriter out;
  out.put(kTcpMagic);
  out.put(version);
  out.put(uint16_t{0});
  out.put(nonce);
  return out.take();
}

std::string mapped_hello(const Nonce& nonce) {
  WireWriter out;
  out.put(MappedKind::kHello);
  out.put(kMappedVersion);
  out.put(nonce);
  return out.take();
}

std::string tcp_frame(const TcpFrame& frame, size_t payload) {
  WireWriter out;
  out.put(frame);
  return out.take() + std::string(payload, 'x');
}

}  // namespace

TEST_CASE("tcp: wrong nonce, wrong version, noise") {
  Target target;
  for (const std::string& hello :
       {tcp_hello(random_nonce()), tcp_hello(target.offer.keys.connect, 99),
        tcp_hello(target.offer.keys.proof), std::string(1000, 'x')}) {
    const ScopedFd fd = target.connect_tcp();
    send_all(fd, hello);
    CHECK(closed_by_peer(fd));
  }
  CHECK(target.d.pools.all_zero());
}

TEST_CASE("tcp: frames outside the pool or the grant") {
  Target target;
  target.d.mover->allow(9, 1, {{2}, {}});
  target.d.mover->allow(8, 2, {{3}, {}});  // another link's
  const int64_t page_bytes = target.d.pools.borrowed[0]->page_bytes();
  const TcpFrame bad[] = {
      {.slot_gen = 1, .bytes = 8, .group = 2, .page = 2},
      {.slot_gen = 1, .bytes = 8, .group = -7, .page = 2},
      {.slot_gen = 1, .bytes = 8, .group = 0, .page = -1},
      {.slot_gen = 1, .bytes = 8, .group = 0, .page = kTestPages},
      {.slot_gen = 1, .bytes = 0, .group = 0, .page = 2},
      {.slot_gen = 1, .bytes = -8, .group = 0, .page = 2},
      {.slot_gen = 1, .bytes = INT64_MAX, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = page_bytes - 4, .bytes = 8, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = -8, .bytes = 8, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = INT64_MAX, .bytes = 8, .group = 0, .page = 2},
      {.slot_gen = 1, .bytes = 8, .group = 0, .page = 3},
      {.slot_gen = 2, .bytes = 8, .group = 0, .page = 3},
  };
  for (const TcpFrame& frame : bad) {
    CAPTURE(frame.offset);
    CAPTURE(frame.bytes);
    CAPTURE(frame.page);
    const ScopedFd fd = target.connect_tcp();
    send_all(fd, tcp_hello(target.offer.keys.connect) + tcp_frame(frame, 64));
    CHECK(closed_by_peer(fd));
  }
  CHECK(target.d.pools.all_zero());
}

TEST_CASE("tcp: random bytes after a true hello") {
  Target target;
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int32_t round = 0; round < 50; ++round) {
    std::string noise(4096, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    const ScopedFd fd = target.connect_tcp();
    send_all(fd, tcp_hello(target.offer.keys.connect) + noise);
    CHECK(closed_by_peer(fd));
  }
  CHECK(target.d.pools.all_zero());
}

TEST_CASE("mapped: no memory without nonce and a pidfd of the peer itself") {
  Target target;
  const ScopedFd file(memfd_create("not-a-pidfd", MFD_CLOEXEC));
  struct Hello {
    std::string bytes;
    std::vector<int> fds;
  };
  const Hello bad[] = {
      {mapped_hello(random_nonce()), {file.get()}},
      {mapped_hello(target.offer.keys.connect), {file.get()}},
      {mapped_hello(target.offer.keys.connect), {}},
      {mapped_hello(target.offer.keys.connect), {file.get(), file.get()}},
      {mapped_hello(target.offer.keys.connect).substr(0, 9), {}},
      {std::string(1, static_cast<char>(MappedKind::kWant)) + std::string(8, '\0'), {}},
      {std::string(200, 'x'), {}},
  };
  for (const Hello& hello : bad) {
    const ScopedFd fd = target.connect_mapped();
    REQUIRE(send_message(fd.get(), hello.bytes, hello.fds).ok());
    pollfd one{.fd = fd.get(), .events = POLLIN};
    REQUIRE_EQ(poll(&one, 1, 10'000), 1);
    CHECK_FALSE(receive_message(fd.get()).ok());
  }
}

namespace {

// A process of our own that speaks UCX to D's worker.
struct RawUcxPeer {
  explicit RawUcxPeer(const std::string& endpoint_address) : worker(std::move(*UcxWorker::make())) {
    std::string host;
    std::string address;
    WireReader in(endpoint_address);
    REQUIRE((in.get_string(host) && in.get_string(address)));
    for (const uint16_t message : {kUcxWelcome, kUcxGoodbye}) {
      worker->set_receiver(message, [this, message](std::string_view header, std::string_view) {
        received = message;
        WireReader fields(header);
        uint64_t route = 0;
        Nonce proof{};
        (void)(fields.get(route) && fields.get(proof) && fields.get(connection));
      });
    }
    endpoint = std::move(*UcxEndpoint::connect(*worker, address, {}));
  }
  void send(uint16_t message, const std::string& header, const std::string& payload) {
    // Kept to the end of the test: the send may still read them.
    const std::string& kept_header = sent.emplace_back(header);
    const std::string& kept_payload = sent.emplace_back(payload);
    REQUIRE(endpoint->send(message, kept_header, kept_payload, [] {}).ok());
  }
  uint16_t wait() {
    received = 0;
    for (int32_t turn = 0; turn < 1000 && received == 0; ++turn) {
      if (worker->progress() || !worker->arm()) continue;
      pollfd one{.fd = worker->event_fd(), .events = POLLIN};
      poll(&one, 1, 10'000);
    }
    return received;
  }
  void say_hello(const Nonce& nonce) {
    WireWriter out;
    out.put(nonce);
    out.put(uint64_t{1});
    send(kUcxHello, out.take(), worker->address());
  }
  void send_piece(uint64_t to, const Nonce& nonce, const UcxPiece& piece) {
    WireWriter out;
    out.put(to);
    out.put(nonce);
    out.put(piece);
    send(kUcxPiece, out.take(), "payload!");
  }
  std::unique_ptr<UcxWorker> worker;
  std::deque<std::string> sent;
  uint16_t received = 0;
  uint64_t connection = 0;
  std::unique_ptr<UcxEndpoint> endpoint;
};

}  // namespace

TEST_CASE("ucx: strangers are not answered, a piece outside the grant ends the connection") {
  Target target;
  target.d.mover->allow(9, 1, {{2}, {}});
  const Nonce& nonce = target.offer.keys.connect;
  const int64_t page_bytes = target.d.pools.borrowed[0]->page_bytes();
  const UcxPiece bad[] = {
      {.slot_gen = 1, .group = 0, .page = 3},
      {.slot_gen = 1, .group = 7, .page = 2},
      {.slot_gen = 1, .group = 0, .page = kTestPages},
      {.slot_gen = 1, .offset = page_bytes - 4, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = -8, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = INT64_MAX, .group = 0, .page = 2},
  };
  for (const UcxPiece& piece : bad) {
    RawUcxPeer peer(target.offer.endpoints[2].address);
    peer.say_hello(random_nonce());
    peer.send(kUcxHello, "x", "y");
    peer.send(kUcxPiece, "x", "y");
    peer.send_piece(1, random_nonce(), {.slot_gen = 1, .group = 0, .page = 2});
    peer.say_hello(nonce);
    REQUIRE_EQ(peer.wait(), kUcxWelcome);
    peer.send_piece(peer.connection + 1, nonce, {.slot_gen = 1, .group = 0, .page = 2});
    peer.send_piece(peer.connection, random_nonce(), {.slot_gen = 1, .group = 0, .page = 2});
    peer.send_piece(peer.connection, nonce, piece);
    CHECK_EQ(peer.wait(), kUcxGoodbye);
  }
  CHECK(target.d.pools.all_zero());
}

// P's side: a D that answers nonsense.
TEST_CASE("mapped: a listener that is not the peer's is not written to") {
  const std::string name = "baton-test-" + to_hex(random_nonce());
  const Result<ScopedFd> listener = listen_unix(name);
  REQUIRE(listener.ok());
  SystemClock clock;
  TestEnd p({.transports = "mapped"}, clock);
  const Offer offer{.keys = {random_nonce(), random_nonce()},
                    .pools = geometry_of(p.pools.borrowed),
                    .endpoints = {{"mapped", name}}};
  p.mover->attach(1, encode_offer(offer), long_lease());
  pollfd one{.fd = listener->get(), .events = POLLIN};
  REQUIRE_EQ(poll(&one, 1, 10'000), 1);
  const ScopedFd socket = accept_unix(listener->get());
  const ScopedFd memory(memfd_create("other", MFD_CLOEXEC));
  REQUIRE_EQ(ftruncate(memory.get(), kScratchBytes), 0);
  const char welcome[] = {static_cast<char>(MappedKind::kWelcome),
                          static_cast<char>(HandoffMemory::Kind::kHost)};
  SUBCASE("memory without the proof") {
    REQUIRE(
        send_message(socket.get(), std::string_view(welcome, sizeof welcome), {memory.get()}).ok());
    CHECK_EQ(p.log.wait(MoverEvent::Kind::kAttachFailed).error,
             "mapped: this memory is not the peer's");
  }
  SUBCASE("memory that is too short") {
    REQUIRE_EQ(ftruncate(memory.get(), 100), 0);
    REQUIRE(
        send_message(socket.get(), std::string_view(welcome, sizeof welcome), {memory.get()}).ok());
    CHECK_NE(p.log.wait(MoverEvent::Kind::kAttachFailed).error.find("got 100 bytes"),
             std::string::npos);
  }
  SUBCASE("memory of another kind") {
    const char gpu[] = {welcome[0], static_cast<char>(HandoffMemory::Kind::kCuda)};
    REQUIRE(send_message(socket.get(), std::string_view(gpu, sizeof gpu), {memory.get()}).ok());
    CHECK_NE(p.log.wait(MoverEvent::Kind::kAttachFailed).error.find("the other's on a GPU"),
             std::string::npos);
  }
  SUBCASE("another message") {
    REQUIRE(send_message(socket.get(), "\x07", {}).ok());
    CHECK_EQ(p.log.wait(MoverEvent::Kind::kAttachFailed).error, "mapped: got message 7, want 2");
  }
}

}  // namespace baton
