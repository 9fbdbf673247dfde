// P's way to a data connection: tries the addresses of an endpoint one after the other. Handoff
// thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"
#include "kvtransfer/data_listener.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

class Dialler {
 public:
  struct Events {  // one of them, once, from PollLoop::poll; the dialler may be destroyed in it
    std::function<void(ScopedFd socket, const std::string& address)> connected;
    std::function<void(const Status&)> failed;  // says what became of each address
  };

  // Each address has `timeout_ms`; one that fails at once costs nothing.
  Dialler(PollLoop& loop, std::vector<SocketAddress> addresses, int64_t timeout_ms, Events events);

 private:
  void try_next();
  void on_connected();
  void note_failure(const std::string& failure);

  PollLoop& loop_;
  const int64_t timeout_ms_;
  const Events events_;
  std::vector<SocketAddress> addresses_;  // not yet tried
  std::string address_;                   // being tried
  std::string failures_;                  // of those tried
  ScopedFd socket_;
  PollLoop::Watch timeout_;
  PollLoop::Watch watch_;
};

}  // namespace baton
