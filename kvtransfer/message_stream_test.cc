#include "kvtransfer/message_stream.h"

#include <sys/socket.h>

#include "kvtransfer/wire.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::string framed(std::string_view message) {
  WireWriter out;
  out.put_string(message);
  return out.take();
}

// Answers each message with `answer`; the test holds the other end of its socket.
struct Answering {
  explicit Answering(std::string answer) {
    int ends[2];
    REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    theirs = ScopedFd(ends[0]);
    stream = std::make_unique<MessageStream>(
        loop, std::make_unique<TcpStream>(ScopedFd(ends[1])),
        [this, answer = std::move(answer)](std::string_view) {
          stream->send(answer);
          return Status();
        },
        [this](const Status& status) {
          closed = status.message();
          stream.reset();
        });
  }
  void ask() {
    const std::string question = framed("?");
    (void)send(theirs.get(), question.data(), question.size(), MSG_NOSIGNAL);
    loop.poll(false);
  }
  // Bytes that have come.
  size_t read_all() {
    char bytes[64 << 10];
    size_t all = 0;
    for (ssize_t got = 0; (got = recv(theirs.get(), bytes, sizeof(bytes), 0)) > 0;)
      all += static_cast<size_t>(got);
    return all;
  }

  PollLoop loop;
  ScopedFd theirs;
  std::unique_ptr<MessageStream> stream;
  std::string closed;
};

TEST_CASE("a peer that asks and reads is answered without end") {
  Answering d(std::string(60'000, 'a'));
  size_t got = 0;
  for (int32_t i = 0; i < 100; ++i) {
    d.ask();
    got += d.read_all();
  }
  while (got < 100 * framed(std::string(60'000, 'a')).size() && d.closed.empty()) {
    d.loop.poll(true);
    got += d.read_all();
  }
  CHECK_EQ(d.closed, "");
}

TEST_CASE("a peer that asks without reading is given up, not kept in memory") {
  Answering d(std::string(60'000, 'a'));
  for (int32_t i = 0; i < 100 && d.closed.empty(); ++i) d.ask();
  CHECK_NE(d.closed.find("the peer does not read"), std::string::npos);
  CHECK_NE(d.closed.find("want at most 1048576"), std::string::npos);
}

}  // namespace
}  // namespace baton
