#include "base/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace baton {
namespace {

// What waits unsent in the kernel delays a heartbeat behind it: little enough for a millisecond of
// a slow network.
constexpr int kUnsentBytesMax = 256 << 10;

Status system_error(const std::string& what) {
  return unavailable(what + ": " + std::strerror(errno));
}

Status tune(const ScopedFd& socket) {
  const int on = 1;
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    return system_error("TCP_NODELAY");
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytesMax,
                 sizeof kUnsentBytesMax) != 0)
    return system_error("TCP_NOTSENT_LOWAT");
  return {};
}

ScopedFd new_socket(const SocketAddress& address) {
  return ScopedFd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

const sockaddr* as_sockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

Result<HostPort> parse_host_port(const std::string& text) {
  const Status bad = invalid_argument("address: got \"" + text + "\", want host:port");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  HostPort parsed;
  parsed.host = text.substr(0, colon);
  if (parsed.host.front() == '[' && parsed.host.back() == ']')
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, parsed.port);
  if (error != std::errc() || stop != end || parsed.port < 0 || parsed.port > 65535) return bad;
  return parsed;
}

Result<std::vector<SocketAddress>> resolve(const HostPort& target, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (error != 0) return unavailable("host " + target.host + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

Result<ScopedFd> listen_tcp(const SocketAddress& address) {
  ScopedFd socket = new_socket(address);
  if (!socket.valid()) return system_error("socket");
  const int on = 1;  // a restarted worker takes its port back at once
  if (setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
    return system_error("SO_REUSEADDR");
  if (::bind(socket.get(), as_sockaddr(address), address.length) != 0) return system_error("bind");
  if (::listen(socket.get(), SOMAXCONN) != 0) return system_error("listen");
  return socket;
}

int32_t local_port(const ScopedFd& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) !=
      0)
    return 0;
  if (address.storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port);
}

std::string to_text(const SocketAddress& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(as_sockaddr(address), address.length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  const bool v6 = address.storage.ss_family == AF_INET6;
  return (v6 ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

std::string peer_address(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (getpeername(socket, generic, &address.length) != 0) return {};
  return to_text(address);
}

Result<ScopedFd> connect_tcp(const SocketAddress& address) {
  ScopedFd socket = new_socket(address);
  if (!socket.valid()) return system_error("socket");
  if (Status status = tune(socket); !status.ok()) return status;
  if (::connect(socket.get(), as_sockaddr(address), address.length) != 0 && errno != EINPROGRESS)
    return system_error("connect");
  return socket;
}

Result<ScopedFd> accept_tcp(const ScopedFd& listener, SocketAddress* from) {
  for (;;) {
    from->length = sizeof from->storage;
    ScopedFd socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from->storage),
                              &from->length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return unavailable("no connection waits");
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        return Status(Code::kResourceExhausted, std::string("accept: ") + std::strerror(errno));
      continue;  // that one connection is already gone
    }
    if (tune(socket).ok()) return socket;
  }
}

}  // namespace baton
