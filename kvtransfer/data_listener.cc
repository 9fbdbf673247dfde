#include "kvtransfer/data_listener.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <sstream>

#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kAcceptPauseMs = 100;
constexpr size_t kAddressesMax = 8;

[[noreturn]] void refuse(const std::string& transport, const std::string& host,
                         const std::string& why) {
  throw ConfigError("kvtransfer: " + transport + ": cannot listen on " +
                    (host.empty() ? "any address" : host) + ": " + why);
}

SocketAddress resolve(const std::string& transport, const std::string& host) {
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  if (rc != 0) refuse(transport, host, gai_strerror(rc));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  return address;
}

ScopedFd listen_on(const std::string& transport, const std::string& host) {
  const SocketAddress address = resolve(transport, host);
  const auto* target = reinterpret_cast<const sockaddr*>(&address.storage);
  ScopedFd fd(socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || bind(fd.get(), target, address.bytes) != 0 || listen(fd.get(), 64) != 0) {
    refuse(transport, host, strerror(errno));
  }
  return fd;
}

in_port_t& port_of(sockaddr_storage& storage) {
  return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(storage).sin_port;
}

bool is_any(const sockaddr_storage& storage) {
  if (storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == INADDR_ANY;
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr) != 0;
}

// The addresses of this machine that others can reach, for a listener on all of them; loopback
// where there is no other.
std::vector<SocketAddress> own_addresses(int family) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  std::vector<SocketAddress> addresses;
  std::vector<SocketAddress> loopback;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || (it->ifa_flags & IFF_UP) == 0) continue;
    const bool v4 = it->ifa_addr->sa_family == AF_INET;
    if (!v4 && !(family == AF_INET6 && it->ifa_addr->sa_family == AF_INET6)) continue;
    SocketAddress address;
    address.bytes = v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, it->ifa_addr, address.bytes);
    // Link-local addresses mean nothing without the reader's interface.
    if (!v4 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr))
      continue;
    ((it->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : addresses).push_back(address);
  }
  if (addresses.empty()) return loopback;
  if (addresses.size() > kAddressesMax) addresses.resize(kAddressesMax);
  return addresses;
}

std::string reachable_at(const ScopedFd& listener) {
  SocketAddress bound;
  bound.bytes = sizeof(bound.storage);
  CHECK_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes),
           0);
  if (!is_any(bound.storage)) return bound.to_string();
  std::string text;
  for (SocketAddress address : own_addresses(bound.storage.ss_family)) {
    port_of(address.storage) = port_of(bound.storage);
    text += (text.empty() ? "" : ",") + address.to_string();
  }
  return text;
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(const std::string& text) {
  const Status bad =
      invalid_argument("address: got \"" + text.substr(0, 64) + "\", want a numeric host:port");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  const bool v6 = text[0] == '[' && text[colon - 1] == ']';
  const std::string host = v6 ? text.substr(1, colon - 2) : text.substr(0, colon);
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return bad;
  SocketAddress address;
  address.storage.ss_family = v6 ? AF_INET6 : AF_INET;
  address.bytes = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  void* const to =
      v6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr)
         : &reinterpret_cast<sockaddr_in&>(address.storage).sin_addr;
  if (inet_pton(address.storage.ss_family, host.c_str(), to) != 1) return bad;
  port_of(address.storage) = htons(port);
  return address;
}

std::string SocketAddress::to_string() const {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int rc = getnameinfo(reinterpret_cast<const sockaddr*>(&storage), bytes, host, sizeof(host),
                             port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  CHECK_EQ(rc, 0) << gai_strerror(rc);
  return storage.ss_family == AF_INET6 ? std::string("[") + host + "]:" + port
                                       : std::string(host) + ":" + port;
}

Result<std::vector<SocketAddress>> parse_addresses(const std::string& endpoint) {
  std::vector<SocketAddress> addresses;
  std::istringstream list(endpoint);
  for (std::string one; std::getline(list, one, ',');) {
    const Result<SocketAddress> parsed = SocketAddress::parse(one);
    if (!parsed.ok()) return parsed.status();
    addresses.push_back(*parsed);
    if (addresses.size() == kAddressesMax) break;
  }
  if (addresses.empty()) return invalid_argument("the peer offers no address");
  return addresses;
}

void set_data_options(int fd, int64_t dead_after_ms) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto limit_ms = static_cast<unsigned>(dead_after_ms);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof(limit_ms));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof(on));
}

DataListener::DataListener(PollLoop& loop, const std::string& transport, const std::string& host,
                           Accept accept)
    : loop_(loop), accept_(std::move(accept)), listener_(listen_on(transport, host)) {
  endpoint_ = reachable_at(listener_);
  watch_ = loop_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
}

void DataListener::on_accept() {
  ScopedFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid() && errno != EAGAIN) {
    // Out of descriptors: the one who waits would keep us awake without end.
    watch_.set_events(0);
    pause_ = loop_.after_ms(kAcceptPauseMs, [this] { watch_.set_events(EPOLLIN); });
  }
  if (!socket.valid()) return;
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  accept_(std::move(socket));
}

}  // namespace baton
