// Links under TLS, and what is read again without a restart.
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/credential_files.h"
#include "base/link.h"
#include "base/link_testing.h"
#include "base/socket.h"
#include "base/tls_testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

LinkConfig with(const TlsFiles& files, LinkConfig config = Node::fast()) {
  std::signal(SIGPIPE, SIG_IGN);   // as the processes do
  config.hello_timeout_ms = 5000;  // a busy machine, a sanitizer
  config.tls_cert_file = files.cert;
  config.tls_key_file = files.key;
  config.tls_ca_file = files.ca;
  return config;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

Message open_of(size_t tokens) {
  Open open;
  for (size_t i = 0; i < tokens; ++i) open.tokens.push_back(static_cast<TokenId>(i));
  return open;
}

// The failures of a node that has none of another kind.
int64_t failures(const Node& node, const std::string& reason) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const LinkStats stats = node.links->stats();
    if (const int64_t count = stats.handshake_failures.at(reason); count > 0) return count;
    if (std::chrono::steady_clock::now() > deadline) return 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Both ends of one connection through the handshake; the first error of each.
struct StreamPair {
  StreamPair(const Credentials& dialer_side, const Credentials& acceptor_side) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    dialer = dialer_side.open(ScopedFd(fds[0]), StreamSide::kDialer);
    acceptor = acceptor_side.open(ScopedFd(fds[1]), StreamSide::kAcceptor);
    bool dialer_said = false, acceptor_said = false;
    for (int round = 0; round < 20; ++round) {
      if (dialer_status.ok())
        dialer_said |= step(*dialer, dialer_said, dialer_status, from_acceptor);
      if (acceptor_status.ok())
        acceptor_said |= step(*acceptor, acceptor_said, acceptor_status, from_dialer);
    }
  }
  static bool step(ByteStream& stream, bool said, Status& status, std::string& heard) {
    char bytes[64];
    const Result<size_t> got = stream.read(bytes, sizeof bytes);
    if (!got.ok()) status = got.status();
    if (got.ok()) heard.append(bytes, *got);
    if (said || !status.ok()) return false;
    const Result<size_t> sent = stream.write("hello");
    if (!sent.ok()) status = sent.status();
    return sent.ok() && *sent == 5;
  }
  std::unique_ptr<ByteStream> dialer, acceptor;
  Status dialer_status, acceptor_status;
  std::string from_dialer, from_acceptor;
};

Credentials tls(const TlsFiles& files) {
  std::signal(SIGPIPE, SIG_IGN);
  return {.tokens = {""}, .tls = std::make_shared<TlsContext>(files)};
}

TEST_CASE("two ends of one authority talk, and share a secret that no other connection has") {
  const TestAuthority authority;
  const Credentials a = tls(authority.issue("a")), b = tls(authority.issue("b"));
  StreamPair one(a, b), two(a, b);
  CHECK(one.from_dialer == "hello");
  CHECK(one.from_acceptor == "hello");
  CHECK(one.dialer->channel_binding().size() == 32);
  CHECK(one.dialer->channel_binding() == one.acceptor->channel_binding());
  CHECK(one.dialer->channel_binding() != two.dialer->channel_binding());
}

TEST_CASE("each mismatch has its own words on both ends") {
  const TestAuthority authority, other;
  const Credentials good = tls(authority.issue("good")), plain{.tokens = {""}};
  TlsFiles mixed = other.issue("stranger");
  mixed.ca = authority.path("ca.pem");  // trusts us, and is not known to us
  const Credentials stranger = tls(mixed), old = tls(authority.issue("old", -1));
  const auto has = [](const Status& status, const char* words) {
    CHECK_MESSAGE(status.message().find(words) != std::string::npos, status.message());
  };
  const char* const kTheirs = "the peer does not take our certificate: ";
  {
    StreamPair pair(stranger, good);
    has(pair.acceptor_status, "the peer's certificate: unable to get local issuer certificate");
    has(pair.dialer_status, kTheirs);
    CHECK(pair.acceptor_status.code() == Code::kUnauthenticated);
    CHECK(pair.from_dialer.empty());
  }
  {
    StreamPair pair(good, stranger);
    has(pair.dialer_status, "the peer's certificate: unable to get local issuer certificate");
    has(pair.acceptor_status, kTheirs);
  }
  {
    StreamPair pair(old, good);
    has(pair.acceptor_status, "the peer's certificate: certificate has expired");
    has(pair.dialer_status, "the peer does not take our certificate: certificate expired");
  }
  {
    StreamPair pair(plain, good);
    has(pair.acceptor_status, "TLS: the peer speaks plain text, want TLS");
  }
}

TEST_CASE("bytes that come between a look and a read do not make the peer a plain one") {
  const TestAuthority authority;
  const LinkConfig config = with(authority.issue("a"));
  for (int round = 0; round < 30; ++round) {
    Node a("a", 1, config), b("b", 2, config);
    a.links->connect(b.address());
    a.wait<LinkUp>();
    b.wait<LinkUp>();
    REQUIRE(a.links->stats().handshake_failures.at("unauthenticated") == 0);
    REQUIRE(b.links->stats().handshake_failures.at("unauthenticated") == 0);
  }
}

TEST_CASE("links under TLS carry messages both ways, large ones too") {
  const TestAuthority authority;
  Node a("a", 1, with(authority.issue("a"))), b("b", 2, with(authority.issue("b")));
  a.links->connect(b.address());
  const auto up_a = a.wait<LinkUp>();
  const auto up_b = b.wait<LinkUp>();
  for (int i = 0; i < 20; ++i) {
    a.links->send(up_a.link, open_of(200'000));
    b.links->send(up_b.link, open_of(150'000));
  }
  for (int i = 0; i < 20; ++i) {
    CHECK((b.wait<LinkMessage>().message == open_of(200'000)));
    CHECK((a.wait<LinkMessage>().message == open_of(150'000)));
  }
  CHECK(a.links->stats().handshake_failures.at("unauthenticated") == 0);
}

TEST_CASE("plain against TLS and TLS against plain fail on both sides, and say so") {
  const TestAuthority authority;
  const LinkConfig secure = with(authority.issue("secure"));
  Node tls_node("t", 1, secure), plain_node("p", 2);
  SUBCASE("a plain dialer") {
    plain_node.links->connect(tls_node.address());
  }
  SUBCASE("a TLS dialer") {
    tls_node.links->connect(plain_node.address());
  }
  CHECK(failures(tls_node, "unauthenticated") > 0);
  CHECK(failures(plain_node, "unauthenticated") > 0);
  CHECK(tls_node.count<LinkUp>() + plain_node.count<LinkUp>() == 0);
}

TEST_CASE("a stranger with the right token does not link up; a silent one is closed in time") {
  const TestAuthority authority, other;
  LinkConfig config = with(authority.issue("b"));
  config.hello_timeout_ms = 200;
  Node b("b", 2, config), stranger("s", 3, with(other.issue("s")));
  stranger.links->connect(b.address());
  CHECK(failures(b, "unauthenticated") > 0);
  const auto socket =
      connect_tcp(resolve({"127.0.0.1", b.links->port()}, /*numeric_only=*/true)->front());
  REQUIRE(socket.ok());
  CHECK(failures(b, "timeout") > 0);
  CHECK(b.count<LinkUp>() == 0);
}

TEST_CASE("only some of the TLS files, or unusable ones, are a start-up error") {
  const TestAuthority authority;
  const TlsFiles good = authority.issue("a"), other = authority.issue("b");
  CHECK_THROWS_AS(CredentialFiles(with({good.cert, good.key, ""})), ConfigError);
  CHECK_THROWS_AS(CredentialFiles(with({"", "", good.ca})), ConfigError);
  CHECK_THROWS_AS(CredentialFiles(with({good.cert, other.key, good.ca})), ConfigError);
  CHECK_THROWS_AS(CredentialFiles(with({good.cert, good.key, "/nonexistent"})), ConfigError);
  CHECK_THROWS_AS(CredentialFiles(with({good.key, good.key, good.ca})), ConfigError);
}

TEST_CASE("new certificates count from the next handshake; broken ones leave the old") {
  const TestAuthority first, second;
  const TlsFiles files = first.issue("a");
  const Credentials peer = tls(second.issue("peer"));
  CredentialFiles credentials(with(files));
  const auto before = credentials.current();
  CHECK(credentials.current() == before);  // not read again
  write_file(files.cert, "no certificate");
  CHECK(credentials.current() == before);

  const TlsFiles renewed = second.issue("a");
  std::filesystem::copy_file(renewed.cert, files.cert,
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(credentials.current() == before);  // the key does not fit so far
  std::filesystem::rename(renewed.key, files.key);
  std::filesystem::rename(renewed.ca, files.ca);
  const auto after = credentials.current();
  CHECK(after != before);
  CHECK(StreamPair(peer, *after).from_dialer == "hello");
  CHECK_FALSE(StreamPair(peer, *before).acceptor_status.ok());
}

struct Tokens {
  explicit Tokens(const std::string& text) { set(text); }
  void set(const std::string& text) { write_file(file, text); }
  LinkConfig config() const {
    LinkConfig config = Node::fast();
    config.token_file = file;
    return config;
  }
  TestAuthority folder;
  std::string file = folder.path("token");
};

TEST_CASE("a token rollout in three steps never cuts a link and never refuses one") {
  const std::string old = "an old token of 16+ bytes\n", fresh = "a new token of 16+ bytes\n";
  Tokens a_file(old), b_file(old);
  Node a("a", 1, a_file.config()), b("b", 2, b_file.config());
  a.links->connect(b.address());
  a.wait<LinkUp>();
  int dialled = 0;
  const auto newcomer_links_up = [&](const Tokens& tokens) {
    Node c("c" + std::to_string(++dialled), 10, tokens.config());
    c.links->connect(b.address());
    CHECK(c.wait<LinkUp>().peer.worker_id == "b");
    CHECK(c.links->stats().handshake_failures.at("unauthenticated") == 0);
  };
  for (const std::string& text : {old + fresh, fresh + "\n" + old, fresh}) {
    a_file.set(text);
    newcomer_links_up(a_file);  // b is a step behind
    b_file.set(text);
    newcomer_links_up(a_file);
  }
  Tokens outdated(old);
  Node d("d", 20, outdated.config());
  d.links->connect(b.address());
  CHECK(failures(d, "refused") > 0);
  b_file.set("short");
  newcomer_links_up(a_file);  // the broken file counts for nothing
  CHECK(a.count<LinkDown>() == 0);
}

}  // namespace
}  // namespace baton
