#include "base/hello.h"

#include <random>

#include "tests/doctest.h"

namespace baton {
namespace {

PeerInfo peer(const std::string& worker_id, Epoch epoch) {
  PeerInfo info;
  info.worker_id = worker_id;
  info.epoch = epoch;
  info.role = Role::kDecode;
  info.kv_compat_id = "kv-1";
  info.model_name = "a model";
  info.context_len = 2048;
  info.vocab_size = 49152;
  info.clique = "clique-" + worker_id;
  info.zone = "zone-" + worker_id;
  return info;
}

struct Pair {
  explicit Pair(const std::string& dialer_token = "secret",
                const std::string& acceptor_token = "secret",
                const PeerInfo& acceptor_info = peer("b", 2))
      : Pair(std::vector{dialer_token}, std::vector{acceptor_token}, acceptor_info) {}
  Pair(std::vector<std::string> dialer_tokens, std::vector<std::string> acceptor_tokens,
       const PeerInfo& acceptor_info = peer("b", 2))
      : dialer(Hello::Side::kDialer, peer("a", 1), 1000, std::move(dialer_tokens),
               random_hello_nonce()),
        acceptor(Hello::Side::kAcceptor, acceptor_info, 700, std::move(acceptor_tokens),
                 random_hello_nonce()) {}

  // Carries bytes both ways until nobody says more; `step` bytes at a time.
  void run(size_t step = SIZE_MAX) {
    for (bool moved = true; moved;) {
      moved = carry(dialer, acceptor, to_acceptor, acceptor_status, step);
      moved |= carry(acceptor, dialer, to_dialer, dialer_status, step);
    }
  }
  static bool carry(Hello& from, Hello& to, std::string& buffer, Status& status, size_t step) {
    const std::string bytes = from.take_output();
    for (size_t at = 0; at < bytes.size(); at += step) {
      buffer += bytes.substr(at, step);
      if (status.ok()) status = to.feed(buffer);
      if (bytes.size() - at <= step) break;
    }
    return !bytes.empty();
  }

  Hello dialer, acceptor;
  std::string to_acceptor, to_dialer;
  Status dialer_status, acceptor_status;
};

TEST_CASE("two processes with one token are up and know each other") {
  for (const size_t step : {SIZE_MAX, size_t{1}, size_t{7}}) {
    Pair pair;
    pair.run(step);
    CHECK(pair.dialer.up());
    CHECK(pair.acceptor.up());
    CHECK((pair.dialer.peer() == peer("b", 2)));
    CHECK((pair.acceptor.peer() == peer("a", 1)));
    CHECK(pair.dialer.peer_lease_ms() == 700);
    CHECK(pair.acceptor.peer_lease_ms() == 1000);
  }
}

// A hello as builds of before made it, and one of builds to come.
TEST_CASE("a hello that does not say where the peer is, or says more, is taken") {
  for (const bool older : {true, false}) {
    Pair pair;
    std::string bytes = pair.dialer.take_output();
    const size_t header = 8 + 1;  // the magic and the type; then the length
    if (older) {
      bytes.resize(bytes.size() - std::string("..clique-a..zone-a").size());  // with their lengths
    } else {
      bytes += "more";
    }
    const size_t length = bytes.size() - header - 4;
    bytes[header] = static_cast<char>(length & 0xff);
    bytes[header + 1] = static_cast<char>(length >> 8);
    REQUIRE(pair.acceptor.feed(bytes).ok());
    CHECK(bytes.empty());
  }
}

TEST_CASE("an empty token is a token too") {
  Pair pair("", "");
  pair.run();
  CHECK(pair.dialer.up());
}

TEST_CASE("another token is refused on both sides with the reason") {
  Pair pair("secret", "other");
  pair.run();
  CHECK_FALSE(pair.dialer.up());
  CHECK_FALSE(pair.acceptor.up());
  CHECK(pair.acceptor_status.message().find("cluster token") == 0);
  CHECK(pair.dialer_status.message().find("refused by the peer: cluster token") == 0);
}

TEST_CASE("any of several tokens is accepted, only the first is shown") {
  using Tokens = std::vector<std::string>;
  const auto run = [](const Tokens& dialer_tokens, const Tokens& acceptor_tokens) {
    Pair pair(dialer_tokens, acceptor_tokens);
    pair.run();
    return pair.dialer.up() && pair.acceptor.up();
  };
  CHECK(run({"old", "new"}, {"new", "old"}));
  CHECK(run({"old"}, {"old", "new"}));
  CHECK_FALSE(run({"new", "old"}, {"old"}));
  CHECK_FALSE(run({"old"}, {"new", "old"}));  // it does not know what the acceptor shows
}

TEST_CASE("a proof of one channel is worth nothing in another") {
  Pair pair;
  pair.dialer.bind_channel("to the one in between");
  pair.acceptor.bind_channel("from the one in between");
  pair.run();
  CHECK_FALSE(pair.acceptor.up());
  CHECK(pair.acceptor_status.message().find("cluster token") == 0);
}

TEST_CASE("workers with different kv_compat_id part with both ids and names; a router takes both") {
  PeerInfo other = peer("b", 2);
  other.kv_compat_id = "kv-2";
  Pair pair("secret", "secret", other);
  pair.run();
  const std::string words = "kv_compat_id: b has kv-2, a has kv-1";
  CHECK(pair.acceptor_status.message().find(words) == 0);
  CHECK(pair.dialer_status.message().find("refused by the peer: " + words) == 0);
  other.role = Role::kRouter;
  Pair with_router("secret", "secret", other);
  with_router.run();
  CHECK(with_router.dialer.up());
}

TEST_CASE("a peer that speaks TLS is told apart from any stranger") {
  for (const char first : {'\x15', '\x16'}) {
    Pair pair;
    std::string bytes = std::string(1, first) + "\x03\x03";
    const Status status = pair.acceptor.feed(bytes);
    CHECK(status.code() == Code::kUnauthenticated);
    CHECK(status.message().find("TLS: the peer wants it") == 0);
  }
}

TEST_CASE("a process does not talk to itself") {
  Pair pair("secret", "secret", peer("a", 1));
  pair.run();
  CHECK(pair.acceptor_status.message().find("itself") != std::string::npos);
  CHECK_FALSE(pair.dialer_status.ok());
}

TEST_CASE("another wire version is refused with both numbers") {
  Pair pair;
  std::string bytes = pair.dialer.take_output();
  bytes[13] = 9;  // after the magic and the record's header
  CHECK(pair.acceptor.feed(bytes).message() == "wire version: got 9, want 1");
  std::string answer = pair.acceptor.take_output();
  CHECK(pair.dialer.feed(answer).message() == "refused by the peer: wire version: got 9, want 1");
}

TEST_CASE("frames behind the hello stay in the buffer") {
  Pair pair;
  std::string bytes = pair.dialer.take_output();
  REQUIRE(pair.acceptor.feed(bytes).ok());
  bytes = pair.acceptor.take_output();
  REQUIRE(pair.dialer.feed(bytes).ok());
  bytes = pair.dialer.take_output();
  REQUIRE(pair.acceptor.feed(bytes).ok());
  bytes = pair.acceptor.take_output() + "frames";
  REQUIRE(pair.dialer.feed(bytes).ok());
  CHECK(pair.dialer.up());
  CHECK(bytes == "frames");
}

TEST_CASE("a proof cannot be reflected") {
  Hello dialer(Hello::Side::kDialer, peer("a", 1), 1000, {"secret"}, random_hello_nonce());
  Hello mirror(Hello::Side::kAcceptor, peer("b", 2), 1000, {"guess"}, random_hello_nonce());
  std::string bytes = dialer.take_output();
  REQUIRE(mirror.feed(bytes).ok());
  bytes = mirror.take_output();
  REQUIRE(dialer.feed(bytes).ok());
  bytes = dialer.take_output();  // its own proof, sent back
  CHECK_FALSE(dialer.feed(bytes).ok());
  CHECK_FALSE(dialer.up());
}

TEST_CASE("garbage is refused, whatever it is") {
  const uint64_t seed = std::random_device()();
  MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  std::string http = "GET / HTTP/1.1\r\n\r\n";
  Pair first;
  CHECK_FALSE(first.acceptor.feed(http).ok());
  for (int round = 0; round < 3000; ++round) {
    Pair pair;
    std::string bytes = pair.dialer.take_output();
    for (int n = 0; n < 3; ++n)
      bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
    (void)pair.acceptor.feed(bytes);
    pair.run();
    CHECK_FALSE((pair.dialer.up() && !(pair.acceptor.peer() == peer("a", 1))));
  }
}

}  // namespace
}  // namespace baton
