// Which link leads to which router: answers find their way by the router's epoch, which every
// request id carries.
#pragma once

#include <unordered_map>

#include "base/link.h"
#include "base/messages.h"

namespace baton {

// The worker loop's thread only.
class RouterLinks {
 public:
  explicit RouterLinks(Outbox& outbox) : outbox_(outbox) {}

  void up(LinkId link, Epoch epoch) { links_[epoch] = link; }
  // The router that was behind this link, 0 if it was none, or if it has a newer link already.
  Epoch down(LinkId link) {
    for (auto it = links_.begin(); it != links_.end(); ++it) {
      if (it->second != link) continue;
      const Epoch epoch = it->first;
      links_.erase(it);
      return epoch;
    }
    return 0;
  }

  // Whether requests of this router's epoch may come over this link.
  bool owns(LinkId link, Epoch epoch) const {
    const auto it = links_.find(epoch);
    return it != links_.end() && it->second == link;
  }

  // A router that is gone needs no answer: its requests are being cancelled.
  void send(const RequestId& id, Message message) {
    const auto it = links_.find(id.router_epoch);
    if (it != links_.end()) outbox_.send(it->second, std::move(message));
  }
  void send_all(const Message& message) {
    for (const auto& [epoch, link] : links_) outbox_.send(link, message);
  }
  bool empty() const { return links_.empty(); }

 private:
  Outbox& outbox_;
  std::unordered_map<Epoch, LinkId> links_;
};

}  // namespace baton
