#include "kvtransfer/tcp.h"

#include <sys/epoll.h>

#include "base/log.h"
#include "kvtransfer/tcp_receiver.h"
#include "kvtransfer/tcp_route.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 4096;

}  // namespace

TcpTransport::TcpTransport(const TransportContext& context)
    : context_(context),
      listener_(context.loop, "tcp", context.listen_host,
                [this](ScopedFd socket) { on_accept(std::move(socket)); }) {}

TcpTransport::~TcpTransport() = default;

void TcpTransport::forget(LinkId link) {
  std::erase_if(receivers_, [link](const auto& entry) {
    return entry.second->welcomed() && entry.second->link() == link;
  });
}

void TcpTransport::on_accept(ScopedFd socket) {
  if (receivers_.size() >= kConnectionsMax) return;
  const uint64_t id = next_id_++;
  auto receiver = std::make_unique<TcpReceiver>(context_, std::move(socket));
  receiver->watch(
      context_.loop.watch(receiver->fd(), EPOLLIN, [this, id](uint32_t) { serve(id); }),
      context_.loop.after_ms(context_.attach_timeout_ms, [this, id] { receivers_.erase(id); }));
  receivers_[id] = std::move(receiver);
}

void TcpTransport::serve(uint64_t id) {
  const auto it = receivers_.find(id);
  if (it == receivers_.end()) return;
  const Status status = it->second->on_ready();
  if (status.ok()) return;
  // Strangers leave no trace, and an end is on the link's log.
  if (it->second->welcomed() && status.code() == Code::kInvalidArgument)
    log_warn("tcp_refused", {{"link", it->second->link()}, {"reason", status.message()}});
  receivers_.erase(it);
}

Result<std::unique_ptr<Route>> TcpTransport::connect(LinkId link, const Offer& offer,
                                                     const std::string& address,
                                                     RouteOwner& owner) {
  Result<std::vector<SocketAddress>> addresses = parse_addresses(address);
  if (!addresses.ok()) return addresses.status();
  return std::unique_ptr<Route>(
      std::make_unique<TcpRoute>(context_, link, offer, std::move(*addresses), owner));
}

}  // namespace baton
