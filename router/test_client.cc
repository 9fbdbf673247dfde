#include "router/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace baton {

TestClient::TestClient(int32_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval timeout{10, 0};  // a test that hangs fails instead
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  CHECK(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0)
      << "cannot connect to port " << port;
}

void TestClient::send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

bool TestClient::fill() {
  char bytes[16384];
  const ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
  if (n <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::string TestClient::receive_until(const std::string& wanted) {
  while (buffer_.find(wanted) == std::string::npos && fill()) {
  }
  return buffer_;
}

bool TestClient::closed_by_server() {
  return buffer_.empty() && !fill();
}

std::string TestClient::line() {
  receive_until("\r\n");
  const size_t end = buffer_.find("\r\n");
  if (end == std::string::npos) return "";
  const std::string text = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return text;
}

std::string TestClient::take(size_t bytes) {
  while (buffer_.size() < bytes && fill()) {
  }
  const std::string text = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return text;
}

TestResponse TestClient::receive(bool head_only) {
  TestResponse response;
  const std::string status = line();
  if (status.size() < 12) return response;
  response.status = std::stoi(status.substr(9, 3));
  for (std::string header = line(); !header.empty(); header = line()) {
    const size_t colon = header.find(':');
    std::string name = header.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    response.headers[name] = header.substr(colon + 2);
  }
  if (head_only || response.status < 200) return response;
  if (response.headers["transfer-encoding"] == "chunked") {
    while (const size_t size = std::stoul("0" + line(), nullptr, 16)) {
      response.body += take(size);
      line();
    }
    line();
  } else if (response.headers.contains("content-length")) {
    response.body = take(std::stoul(response.headers["content-length"]));
  }
  return response;
}

TestResponse TestClient::get(const std::string& path) {
  send("GET " + path + " HTTP/1.1\r\nHost: t\r\n\r\n");
  return receive();
}

void TestClient::send_post(const std::string& path, const std::string& body) {
  send("POST " + path + " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n" +
       "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

TestResponse TestClient::post(const std::string& path, const std::string& body) {
  send_post(path, body);
  return receive();
}

void TestClient::shut_sending() {
  shutdown(fd_.get(), SHUT_WR);
}

std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
      events.push_back("not an event: " + body.substr(at));
      break;
    }
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

}  // namespace baton
