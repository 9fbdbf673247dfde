#include "kvtransfer/tcp.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "kvtransfer/tcp_receiver.h"
#include "kvtransfer/tcp_route.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 4096;
constexpr int64_t kAcceptPauseMs = 100;
constexpr size_t kAddressesMax = 8;

[[noreturn]] void refuse(const std::string& host, const std::string& why) {
  throw ConfigError("kvtransfer: tcp: cannot listen on " + (host.empty() ? "any address" : host) +
                    ": " + why);
}

SocketAddress resolve(const std::string& host) {
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  if (rc != 0) refuse(host, gai_strerror(rc));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  return address;
}

ScopedFd listen_on(const SocketAddress& address, const std::string& host) {
  const auto* target = reinterpret_cast<const sockaddr*>(&address.storage);
  ScopedFd fd(socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || bind(fd.get(), target, address.bytes) != 0 || listen(fd.get(), 64) != 0) {
    refuse(host, strerror(errno));
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

TcpTransport::TcpTransport(const TransportContext& context)
    : context_(context), listener_(listen_on(resolve(context.listen_host), context.listen_host)) {
  endpoint_ = reachable_at(listener_);
  accept_watch_ = context_.loop.watch(listener_.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
}

TcpTransport::~TcpTransport() = default;

void TcpTransport::forget(LinkId link) {
  std::erase_if(receivers_, [link](const auto& entry) {
    return entry.second->welcomed() && entry.second->link() == link;
  });
}

void TcpTransport::on_accept() {
  ScopedFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid() && errno != EAGAIN) {
    // Out of descriptors: the one who waits would keep us awake without end.
    accept_watch_.set_events(0);
    accept_pause_ =
        context_.loop.after_ms(kAcceptPauseMs, [this] { accept_watch_.set_events(EPOLLIN); });
  }
  if (!socket.valid() || receivers_.size() >= kConnectionsMax) return;
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const uint64_t id = next_id_++;
  auto receiver = std::make_unique<TcpReceiver>(context_, std::move(socket));
  receiver->watch(
      context_.loop.watch(receiver->fd(), EPOLLIN, [this, id](uint32_t) { serve(id); }),
      context_.loop.after_ms(context_.attach_timeout_ms, [this, id] { receivers_.erase(id); }));
  receivers_[id] = std::move(receiver);
}

void TcpTransport::serve(uint64_t id) {
  const auto it = receivers_.find(id);
  if (it != receivers_.end() && !it->second->on_ready().ok()) receivers_.erase(it);
}

Result<std::unique_ptr<Route>> TcpTransport::connect(LinkId link, const Offer& offer,
                                                     const std::string& address,
                                                     RouteOwner& owner) {
  std::vector<SocketAddress> addresses;
  std::istringstream list(address);
  for (std::string one; std::getline(list, one, ',');) {
    const Result<SocketAddress> parsed = SocketAddress::parse(one);
    if (!parsed.ok()) return parsed.status();
    addresses.push_back(*parsed);
    if (addresses.size() == kAddressesMax) break;
  }
  if (addresses.empty()) return invalid_argument("tcp: the peer offers no address");
  return std::unique_ptr<Route>(
      std::make_unique<TcpRoute>(context_, link, offer, std::move(addresses), owner));
}

}  // namespace baton
