#include "base/link.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "base/byte_stream.h"
#include "base/frame.h"
#include "base/hello.h"
#include "base/link_testing.h"
#include "base/message_codec.h"
#include "base/scoped_fd.h"
#include "base/secret_file.h"
#include "base/socket.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using namespace std::chrono_literals;

// A token file that goes away with the test.
struct TokenFile {
  explicit TokenFile(const std::string& token) {
    const ScopedFd file(mkstemp(path.data()));
    REQUIRE(file.valid());
    std::ofstream(path) << token << "\n";
  }
  ~TokenFile() { std::remove(path.c_str()); }
  std::string path = "/tmp/baton_token_XXXXXX";
};

LinkConfig with_token(const TokenFile& file) {
  LinkConfig config = Node::fast();
  config.token_file = file.path;
  return config;
}

Message open_of(size_t tokens) {
  Open open;
  for (size_t i = 0; i < tokens; ++i) open.tokens.push_back(static_cast<TokenId>(i));
  return open;
}

TEST_CASE("a secret that others may read is warned of") {
  const TokenFile file("0123456789abcdef");
  REQUIRE(chmod(file.path.c_str(), 0600) == 0);
  CHECK_FALSE(warn_if_readable_by_others("link.token_file", file.path));
  REQUIRE(chmod(file.path.c_str(), 0640) == 0);
  CHECK(warn_if_readable_by_others("link.token_file", file.path));
  CHECK_FALSE(warn_if_readable_by_others("link.token_file", file.path + ".missing"));
}

// A socket that speaks by hand, blocking until done.
struct RawPeer {
  explicit RawPeer(const Node& node) : RawPeer(node.links->port()) {}
  explicit RawPeer(int32_t port) {
    auto socket = connect_tcp(resolve({"127.0.0.1", port}, true)->front());
    REQUIRE(socket.ok());
    stream = std::make_unique<TcpStream>(std::move(*socket));
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = stream->write(bytes);
      REQUIRE(n.ok());
      bytes.remove_prefix(*n);
      if (*n == 0) std::this_thread::yield();
    }
  }
  // All that comes until the other side closes.
  std::string read_to_end() {
    std::string all;
    char bytes[4096];
    for (;;) {
      const auto n = stream->read(bytes, sizeof bytes);
      if (!n.ok()) return all;
      all.append(bytes, *n);
      if (*n == 0) std::this_thread::sleep_for(1ms);
    }
  }
  void hello(const std::string& token) {
    PeerInfo self;
    self.worker_id = "raw";
    self.epoch = 77;
    Hello hello(Hello::Side::kDialer, self, 400, {token}, random_hello_nonce());
    std::string in;
    char bytes[4096];
    while (!hello.up()) {
      write(hello.take_output());
      const auto n = stream->read(bytes, sizeof bytes);
      REQUIRE(n.ok());
      in.append(bytes, *n);
      REQUIRE(hello.feed(in).ok());
      if (*n == 0) std::this_thread::sleep_for(1ms);
    }
  }
  std::unique_ptr<TcpStream> stream;
};

TEST_CASE("two processes link up, talk in order, and part") {
  Node a("a", 1), b("b", 2);
  a.links->connect(b.address());
  a.links->connect(b.address());
  const auto up_a = a.wait<LinkUp>();
  const auto up_b = b.wait<LinkUp>();
  CHECK(up_a.peer.worker_id == "b");
  CHECK(up_a.address == b.address());
  CHECK(up_b.peer.worker_id == "a");
  CHECK(up_b.address.empty());

  a.links->send(up_a.link, open_of(200'000));  // four frames
  a.links->send(up_a.link, Release{5});
  CHECK((b.wait<LinkMessage>().message == open_of(200'000)));
  CHECK((b.wait<LinkMessage>().message == Message(Release{5})));
  b.links->send(up_b.link, Ack{9, true});
  CHECK((a.wait<LinkMessage>().message == Message(Ack{9, true})));

  a.links->disconnect(b.address());
  CHECK(a.wait<LinkDown>().link == up_a.link);
  CHECK(b.wait<LinkDown>().reason == "closed by the peer");
  a.links->send(up_a.link, Release{6});  // vanishes
  CHECK(b.count<LinkMessage>() == 2);
}

TEST_CASE("a burst of ten thousand messages arrives whole and in order") {
  Node a("a", 1), b("b", 2);
  a.links->connect(b.address());
  const auto up = a.wait<LinkUp>();
  for (uint64_t i = 0; i < 10'000; ++i) a.links->send(up.link, Release{i});
  for (uint64_t i = 0; i < 10'000; ++i)
    REQUIRE(std::get<Release>(b.wait<LinkMessage>().message).slot_gen == i);
}

TEST_CASE("the lease runs ahead of now and ends with the link") {
  Node a("a", 1, Node::short_lease()), b("b", 2, Node::short_lease());
  SystemClock clock;
  a.links->connect(b.address());
  const auto up = a.wait<LinkUp>();
  const Lease lease = a.links->lease(up.link);
  const int64_t first = lease->load();
  CHECK(first > clock.now_us());
  CHECK(first <= clock.now_us() + 400'000);
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (lease->load() == first && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(5ms);
  CHECK(lease->load() > first);
  b.links.reset();
  a.wait<LinkDown>();
  CHECK(lease->load() == 0);
  CHECK(a.links->lease(up.link)->load() == 0);
}

TEST_CASE("a restarted peer is a new link, and the dialer finds it again") {
  auto b = std::make_unique<Node>("b", 2);
  const std::string address = b->address();
  Node a("a", 1);
  a.links->connect(address);
  const auto first = a.wait<LinkUp>();
  b.reset();
  CHECK(a.wait<LinkDown>().link == first.link);
  b = std::make_unique<Node>("b", 3, Node::fast(), address);
  const auto second = a.wait<LinkUp>();
  CHECK(second.link != first.link);
  CHECK(second.peer.epoch == 3);
}

TEST_CASE("a second process of one name replaces the first: down comes before up") {
  Node b("b", 2), first("a", 1);
  first.links->connect(b.address());
  const auto old = b.wait<LinkUp>();
  Node second("a", 11);
  second.links->connect(b.address());
  const auto down = b.wait<LinkDown>();
  CHECK(down.link == old.link);
  CHECK(down.reason.find("replaced") == 0);
  CHECK(b.wait<LinkUp>().peer.epoch == 11);
}

TEST_CASE("processes that dial each other have a link each way") {
  Node a("a", 1), b("b", 2);
  a.links->connect(b.address());
  b.links->connect(a.address());
  for (Node* node : {&a, &b}) {
    const auto one = node->wait<LinkUp>(), other = node->wait<LinkUp>();
    CHECK(one.address.empty() != other.address.empty());
    CHECK(one.link != other.link);
  }
  CHECK(a.count<LinkDown>() + b.count<LinkDown>() == 0);
}

TEST_CASE("a peer that comes back with another epoch loses the links of both directions at once") {
  auto b = std::make_unique<Node>("b", 2);
  Node a("a", 1);
  b->links->connect(a.address());
  const auto accepted = a.wait<LinkUp>();
  a.links->connect(b->address());
  const auto dialled = a.wait<LinkUp>();
  Node again("b", 3);  // elsewhere, while the first one still seems to be there
  a.links->connect(again.address());
  std::set<LinkId> down{a.wait<LinkDown>().link, a.wait<LinkDown>().link};
  CHECK((down == std::set<LinkId>{accepted.link, dialled.link}));
  CHECK(a.wait<LinkUp>().peer.epoch == 3);
}

TEST_CASE("closing a link whose peer has just reset it is no second end") {
  std::promise<LinkId> stands;
  std::promise<void> may_go_on;
  SystemClock clock;
  Links links(Node::fast(), PeerInfo{.worker_id = "a", .epoch = 1}, "127.0.0.1:0", clock,
              [&](const LinkEvent& event) {
                const auto* message = std::get_if<LinkMessage>(&event);
                if (message == nullptr) return;
                stands.set_value(message->link);
                may_go_on.get_future().wait();  // the reset and the commands come together
              });
  auto peer = std::make_unique<RawPeer>(links.port());
  peer->hello("");
  FrameQueue frames;
  frames.push(encode_message(Release{1}));
  std::string bytes;
  frames.next_frames(SIZE_MAX, bytes);
  peer->write(bytes);
  const LinkId link = stands.get_future().get();
  const linger reset{1, 0};
  REQUIRE(::setsockopt(peer->stream->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
  peer.reset();
  links.send(link, Release{1});
  links.close(link, "enough");
  may_go_on.set_value();
}

TEST_CASE("wrong and missing tokens are refused") {
  const TokenFile one("0123456789abcdef-one"), two("0123456789abcdef-two");
  Node b("b", 2, with_token(one)), right("a", 1, with_token(one));
  Node wrong("w", 3, with_token(two)), none("n", 4);
  wrong.links->connect(b.address());
  none.links->connect(b.address());
  right.links->connect(b.address());
  CHECK(b.wait<LinkUp>().peer.worker_id == "a");
  std::this_thread::sleep_for(100ms);
  CHECK(b.count<LinkUp>() == 1);
  CHECK(wrong.count<LinkUp>() + none.count<LinkUp>() == 0);
}

TEST_CASE("start-up errors have a name") {
  const TokenFile small("short");
  CHECK_THROWS_AS(Node("a", 1, with_token(small)), ConfigError);
  CHECK_THROWS_AS(Node("a", 1, Node::fast(), "0.0.0.0:0"), ConfigError);
  CHECK_THROWS_AS(Node("a", 1, Node::fast(), "nonsense"), ConfigError);
  LinkConfig missing = Node::fast();
  missing.token_file = "/nonexistent/token";
  CHECK_THROWS_AS(Node("a", 1, missing), ConfigError);
}

TEST_CASE("strangers: another protocol, silence, garbage after a good hello") {
  Node b("b", 2);
  RawPeer http(b);
  http.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(http.read_to_end().empty());

  RawPeer silent(b);
  CHECK(silent.read_to_end().empty());  // closed after hello_timeout_ms

  RawPeer garbage(b);
  garbage.hello("");
  const auto up = b.wait<LinkUp>();
  garbage.write("\xff\xff\xff\xff garbage");
  const auto down = b.wait<LinkDown>();
  CHECK(down.link == up.link);
  CHECK(down.reason.find("frame length") == 0);
}

TEST_CASE("a peer that answers no heartbeat is down after the lease, and its lease ends") {
  Node b("b", 2, Node::short_lease());
  RawPeer peer(b);
  peer.hello("");
  const auto up = b.wait<LinkUp>();
  const auto start = std::chrono::steady_clock::now();
  const auto down = b.wait<LinkDown>();
  CHECK(down.link == up.link);
  CHECK(down.reason.find("peer silent for") == 0);
  CHECK(std::chrono::steady_clock::now() - start > 300ms);
}

TEST_CASE("a listener that accepts and never speaks is given up and dialled again") {
  const auto listener = listen_tcp(resolve({"127.0.0.1", 0}, true)->front());
  REQUIRE(listener.ok());
  Node a("a", 1);
  a.links->connect("127.0.0.1:" + std::to_string(local_port(*listener)));
  int accepted = 0;
  SocketAddress from;
  std::vector<ScopedFd> kept;
  for (const auto deadline = std::chrono::steady_clock::now() + 10s;
       accepted < 2 && std::chrono::steady_clock::now() < deadline;) {
    if (auto socket = accept_tcp(*listener, &from); socket.ok()) {
      kept.push_back(std::move(*socket));
      ++accepted;
    }
    std::this_thread::sleep_for(2ms);
  }
  CHECK(accepted == 2);
  CHECK(a.count<LinkUp>() == 0);
}

TEST_CASE("a peer that does not read costs at most the outbox") {
  LinkConfig config = Node::fast();
  config.lease_ms = 60'000;
  config.outbox_bytes_max = 1 << 20;
  Node b("b", 2, config);
  RawPeer peer(b);
  peer.hello("");
  const auto up = b.wait<LinkUp>();
  for (int i = 0; i < 400; ++i) b.links->send(up.link, open_of(100'000));
  const auto down = b.wait<LinkDown>();
  CHECK(down.reason.find("link.outbox_bytes_max") == 0);
}

TEST_CASE("a peer that asks for heartbeats and does not read the answers is dropped") {
  LinkConfig config = Node::fast();
  config.lease_ms = 60'000;  // so that the outbox, not the lease, ends it
  config.outbox_bytes_max = 1 << 16;
  Node b("b", 2, config);
  RawPeer peer(b);
  peer.hello("");
  b.wait<LinkUp>();
  FrameQueue frames;
  for (int i = 0; i < 2000; ++i) frames.push(encode_message(Heartbeat{.sent_us = 1'000'000 + i}));
  std::string asked;
  frames.next_frames(SIZE_MAX, asked);
  for (size_t at = 0; b.count<LinkDown>() == 0;) {
    const auto n = peer.stream->write(std::string_view(asked).substr(at));
    if (!n.ok()) break;
    at = (at + *n) % asked.size();
    if (*n == 0) std::this_thread::yield();
  }
  CHECK(b.wait<LinkDown>().reason.find("link.outbox_bytes_max") == 0);
}

TEST_CASE("a process that stood still drops its links before it reads what waited") {
  FakeClock clock;
  Node a("a", 1, Node::short_lease(), "127.0.0.1:0", &clock), b("b", 2, Node::short_lease());
  b.links->connect(a.address());
  const auto up = a.wait<LinkUp>();
  clock.advance_us(401'000);
  b.links->send(b.wait<LinkUp>().link, Release{1});  // the bytes wake it
  const auto down = a.wait<LinkDown>();
  CHECK(down.link == up.link);
  CHECK(down.reason.find("this process stood still") == 0);
  a.wait<LinkUp>();  // b dials again
  CHECK(a.count<LinkMessage>() == 0);
}

TEST_CASE("names are resolved, and addresses that make no sense are tried in vain") {
  Node a("a", 1), b("b", 2);
  a.links->connect("nonsense");
  a.links->connect("localhost:" + std::to_string(b.links->port()));
  CHECK(a.wait<LinkUp>().peer.worker_id == "b");
}

TEST_CASE("too many connections are turned away") {
  LinkConfig config = Node::fast();
  config.connections_max = 1;
  config.lease_ms = 5000;
  Node b("b", 2, config);
  RawPeer first(b);
  first.hello("");
  b.wait<LinkUp>();
  RawPeer second(b);
  CHECK(second.read_to_end().empty());
  CHECK(b.count<LinkUp>() == 1);
}

}  // namespace
}  // namespace baton
