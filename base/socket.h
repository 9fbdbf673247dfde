// TCP sockets: addresses, listening, connecting. Called by the links and the status server.
// Stateless; any thread. All sockets made here are non-blocking and close on exec.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/scoped_fd.h"
#include "base/status.h"

namespace baton {

struct HostPort {
  std::string host;
  int32_t port = 0;
};

// "10.0.0.2:7100", "[::1]:7100", "worker-0.baton:7100".
Result<HostPort> parse_host_port(const std::string& text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Asks the name service and may take seconds, unless `numeric_only`, which refuses names.
Result<std::vector<SocketAddress>> resolve(const HostPort& target, bool numeric_only);
std::string to_text(const SocketAddress& address);  // "10.0.0.2:7100", "[::1]:7100"
bool is_loopback(const SocketAddress& address);

Result<ScopedFd> listen_tcp(const SocketAddress& address);
int32_t local_port(const ScopedFd& socket);
std::string peer_address(int socket);  // to_text() of the other end; empty when it is gone

// Begins to connect; reading or writing tells how it ended.
Result<ScopedFd> connect_tcp(const SocketAddress& address);

// The next waiting connection and who it is from; kUnavailable when there is none,
// kResourceExhausted when this process has no descriptor or memory left for it.
Result<ScopedFd> accept_tcp(const ScopedFd& listener, SocketAddress* from);

}  // namespace baton
