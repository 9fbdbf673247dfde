#include "base/status_server.h"

#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "base/byte_stream.h"
#include "base/socket.h"
#include "base/status.h"

#include "tests/doctest.h"

namespace baton {
namespace {

StatusReply handle(const std::string& path) {
  if (path == "/livez") return {.body = "ok\n"};
  if (path == "/big") return {.body = std::string(8 << 20, 'x')};
  return {.code = 404, .body = "no " + path};
}

std::unique_ptr<TcpStream> connect_to(const StatusServer& server) {
  auto socket = connect_tcp(resolve({"127.0.0.1", server.port()}, true)->front());
  REQUIRE(socket.ok());
  return std::make_unique<TcpStream>(std::move(*socket));
}

std::string read_all(TcpStream& stream) {
  std::string reply;
  char bytes[65536];
  for (;;) {
    const auto n = stream.read(bytes, sizeof bytes);
    if (!n.ok()) return reply;
    reply.append(bytes, *n);
    if (*n == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// What the server says until it closes.
std::string ask(const StatusServer& server, std::string_view request) {
  const auto stream = connect_to(server);
  std::string reply;
  char bytes[65536];
  for (;;) {
    if (!request.empty()) {
      const auto written = stream->write(request);
      REQUIRE(written.ok());
      request.remove_prefix(*written);
    }
    const auto n = stream->read(bytes, sizeof bytes);
    if (!n.ok()) return reply;
    reply.append(bytes, *n);
    if (*n == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_CASE("GET is answered whole, with its length, and the connection closed") {
  const StatusServer server("127.0.0.1:0", handle);
  CHECK(ask(server, "GET /livez?verbose=1 HTTP/1.1\r\nHost: x\r\n\r\n") ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n"
        "Connection: close\r\n\r\nok\n");
  CHECK(ask(server, "GET /big HTTP/1.1\r\n\r\n").size() > 8 << 20);
  CHECK(ask(server, "GET /x HTTP/1.1\r\n\r\n").find("404 Not Found") == 9);
}

TEST_CASE("what is no GET of HTTP/1 is refused") {
  const StatusServer server("127.0.0.1:0", handle);
  CHECK(ask(server, "POST /livez HTTP/1.1\r\n\r\n").find("405") == 9);
  CHECK(ask(server, "nonsense\r\n\r\n").find("400") == 9);
  CHECK(ask(server, "GET  HTTP/1.1\r\n\r\n").find("400") == 9);
  CHECK(ask(server, "GET /" + std::string(9000, 'a')).find("431") == 9);
}

TEST_CASE("idle clients do not keep others out for long") {
  const StatusServer server("127.0.0.1:0", handle);
  std::vector<std::unique_ptr<TcpStream>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(connect_to(server));
  CHECK(ask(server, "GET /livez HTTP/1.1\r\n\r\n").find("200 OK") == 9);
}

TEST_CASE("a client that closes its side after the request is answered") {
  const StatusServer server("127.0.0.1:0", handle);
  const auto half_closed = [&](const char* request) {
    const auto stream = connect_to(server);
    REQUIRE(stream->write(request).ok());
    ::shutdown(stream->fd(), SHUT_WR);
    return read_all(*stream).size();
  };
  CHECK(half_closed("GET /big HTTP/1.1\r\n\r\n") > 8 << 20);
  CHECK(half_closed("GET /livez HTTP/1.1\r\n") == 0);
}

TEST_CASE("start-up errors have a name") {
  CHECK_THROWS_AS(StatusServer("nonsense", handle), ConfigError);
  const StatusServer server("127.0.0.1:0", handle);
  CHECK_THROWS_AS(StatusServer("127.0.0.1:" + std::to_string(server.port()), handle), ConfigError);
}

}  // namespace
}  // namespace baton
