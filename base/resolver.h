// Asks the name service on a thread of its own: getaddrinfo may block for seconds, heartbeats may
// not. Owned by link.cc.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/socket.h"

namespace baton {

class Resolver {
 public:
  using Answer =
      std::function<void(const std::string& address, Result<std::vector<SocketAddress>>)>;

  // `answer` is called on the resolver's thread.
  explicit Resolver(Answer answer);
  ~Resolver();  // waits for a question that is being asked
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // False when too many questions wait.
  bool ask(std::string address);

 private:
  void run();

  const Answer answer_;
  BoundedQueue<std::string> questions_;
  std::thread thread_;
};

}  // namespace baton
