#include "kvtransfer/nccl.h"

#include "kvtransfer/nccl_receiver.h"
#include "kvtransfer/nccl_route.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 1024;

}  // namespace

NcclTransport::NcclTransport(const TransportContext& context, std::shared_ptr<const NcclApi> api,
                             int32_t ctas)
    : context_(context),
      api_(std::move(api)),
      ctas_(ctas),
      listener_(context.loop, "nccl", context.listen_host,
                [this](ScopedFd socket) { on_accept(std::move(socket)); }) {}

NcclTransport::~NcclTransport() = default;

void NcclTransport::on_accept(ScopedFd socket) {
  if (receivers_.size() >= kConnectionsMax) return;
  const uint64_t id = next_id_++;
  const auto joins = [this](LinkId link) { ++served_[link].pairs; };
  receivers_[id] = std::make_unique<NcclReceiver>(
      context_, api_, ctas_, std::move(socket),
      NcclReceiver::Events{.joins = joins, .over = [this, id] { on_over(id); }});
}

// Its pair has ended, if it had one.
void NcclTransport::on_over(uint64_t id) {
  const auto it = receivers_.find(id);
  const std::unique_ptr<NcclReceiver> over = std::move(it->second);
  receivers_.erase(it);
  if (!over->has_pair()) return;
  const auto served = served_.find(over->link());
  --served->second.pairs;
  tell_if_ended(served);
}

void NcclTransport::forget(LinkId link) {
  std::vector<NcclReceiver*> of_link;
  for (const auto& entry : receivers_) {
    if (entry.second->welcomed() && entry.second->link() == link)
      of_link.push_back(entry.second.get());
  }
  const auto served = served_.find(link);
  if (served != served_.end()) served->second.forgotten = true;
  for (NcclReceiver* receiver : of_link) receiver->close(unavailable("the link is gone"));
  // Their ends may have come before.
  if (const auto left = served_.find(link); left != served_.end()) tell_if_ended(left);
}

void NcclTransport::tell_if_ended(std::map<LinkId, Served>::iterator link) {
  if (link->second.pairs > 0 || !link->second.forgotten) return;
  const LinkId id = link->first;
  served_.erase(link);
  context_.report({.kind = MoverEvent::Kind::kStoresEnded, .link = id, .transport = "nccl"});
}

Result<std::unique_ptr<Route>> NcclTransport::connect(LinkId link, const Offer& offer,
                                                      const std::string& address,
                                                      RouteOwner& owner) {
  Result<std::vector<SocketAddress>> addresses = parse_addresses(address);
  if (!addresses.ok()) return addresses.status();
  return std::unique_ptr<Route>(std::make_unique<NcclRoute>(context_, api_, ctas_, link, offer,
                                                            std::move(*addresses), owner));
}

}  // namespace baton
