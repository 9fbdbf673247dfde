// Where D is reached by the transports that cross the network with connections of their own (tcp,
// nccl): addresses as numbers, and a listener. Handoff thread only, but for construction and
// endpoint().
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

// An address as numbers, ready to connect to. "10.0.0.7:41000", "[fd00::7]:41000".
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  static Result<SocketAddress> parse(const std::string& text);
  std::string to_string() const;
};

// Of an endpoint: addresses separated by commas, the first few of them.
Result<std::vector<SocketAddress>> parse_addresses(const std::string& endpoint);

// Of P's end of a data connection: small messages go at once, and a path that dies silently is
// found out in `dead_after_ms`, not in the kernel's quarter of an hour.
void set_data_options(int fd, int64_t dead_after_ms);

class DataListener {
 public:
  // Takes a connected socket, non-blocking and without delay.
  using Accept = std::function<void(ScopedFd)>;

  // Listens on `host` (a name, an address, or empty for any), any port. `transport` is named in
  // the ConfigError that it throws when it cannot.
  DataListener(PollLoop& loop, const std::string& transport, const std::string& host,
               Accept accept);
  const std::string& endpoint() const { return endpoint_; }

 private:
  void on_accept();

  PollLoop& loop_;
  const Accept accept_;
  const ScopedFd listener_;
  std::string endpoint_;
  PollLoop::Watch watch_;
  PollLoop::Watch pause_;
};

}  // namespace baton
