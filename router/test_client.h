// A plain blocking HTTP client for tests: one connection, raw bytes in and out, so that it can also
// misbehave.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/scoped_fd.h"

namespace baton {

struct TestResponse {
  int status = 0;                              // 0: the connection ended first
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without its chunks' frames
};

class TestClient {
 public:
  explicit TestClient(int32_t port);

  void send(const std::string& bytes);
  TestResponse receive(bool head_only = false);
  // Reads until `wanted` has come; all that came. Ends early with the connection.
  std::string receive_until(const std::string& wanted);
  bool closed_by_server();  // nothing more to read but the end

  TestResponse get(const std::string& path);
  TestResponse post(const std::string& path, const std::string& body);
  void send_post(const std::string& path, const std::string& body);
  void shut_sending();  // half-close
  void close() { fd_ = {}; }

 private:
  bool fill();
  std::string line();
  std::string take(size_t bytes);

  ScopedFd fd_;
  std::string buffer_;
};

// The data of each event of a stream, "[DONE]" included.
std::vector<std::string> events_of(const std::string& body);

}  // namespace baton
