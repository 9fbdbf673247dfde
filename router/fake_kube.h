// For tests: an API server that answers each connection by the next step of a script, on a thread
// of its own, over plain HTTP on loopback. After the last step connections are taken and held.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/scoped_fd.h"
#include "config/config.h"

namespace baton {

class FakeKube {
 public:
  struct Request {
    std::string target;
    std::string authorization;
  };
  // What goes out, piece by piece; then the connection is closed, or held until the client leaves.
  struct Step {
    std::vector<std::string> pieces;
    bool hold = false;
  };

  FakeKube();
  ~FakeKube();
  FakeKube(const FakeKube&) = delete;
  FakeKube& operator=(const FakeKube&) = delete;

  void then(Step step);
  KubeConfig config() const;  // of a client of this server; no token
  // The n-th request from the start, when it has come.
  Request request(size_t n);

  static std::string answer(int status, const std::string& body);
  static std::string watch_head();                     // of a body in chunks
  static std::string chunk(const std::string& event);  // one event, with the end of its line
  // Objects. Endpoints are "10.0.0.2", "!10.0.0.2" (not ready), "~10.0.0.2" (terminating).
  static std::string slice(const std::string& name, const std::string& service, int version,
                           const std::vector<std::string>& endpoints);
  static std::string list(int version, const std::vector<std::string>& slices);
  static std::string event(const std::string& type, const std::string& object);

 private:
  void run();
  void serve(const ScopedFd& client);

  ScopedFd listener_;
  ScopedFd stop_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Step> steps_;         // guarded by mutex_
  std::vector<Request> requests_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
