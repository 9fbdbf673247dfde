// D's side of one pair of transport "nccl": the conversation (nccl.h), the check of each slice
// against our grants, the receives. Handoff thread only.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kvtransfer/message_stream.h"
#include "kvtransfer/nccl.h"
#include "kvtransfer/nccl_pair.h"
#include "kvtransfer/wire.h"

namespace baton {

class NcclReceiver {
 public:
  struct Events {
    std::function<void(LinkId)> joins;  // it makes a pair
    std::function<void()> over;         // nothing more is stored; it may be destroyed in it
  };

  NcclReceiver(const TransportContext& context, std::shared_ptr<const NcclApi> api, int32_t ctas,
               ScopedFd socket, Events events);
  // Ends the pair, then `over`: at once where there is none.
  void close(const Status& reason);

  bool welcomed() const { return welcomed_; }
  LinkId link() const { return link_; }  // once welcomed
  bool has_pair() const { return pair_ != nullptr; }

 private:
  Status on_message(std::string_view message);
  Status take_hello(WireReader in);
  Status join(WireReader in);
  Status take_batch(WireReader in);
  Result<std::byte*> address_of(const NcclSlice& slice) const;
  GrantBoard::Verdict judge(const NcclSlice& slice);
  void send(NcclMessage kind);
  void on_moved(int64_t groups);
  void over();

  const TransportContext& context_;
  const std::shared_ptr<const NcclApi> api_;
  const int32_t ctas_;
  const Events events_;
  bool welcomed_ = false;
  LinkId link_ = 0;
  bool ready_ = false;  // the communicator works
  bool closed_ = false;
  size_t under_way_ = 0;          // batches that are being received
  std::byte* scratch_ = nullptr;  // of the measurement, the pair's; null: it is over
  std::unique_ptr<MessageStream> control_;
  std::unique_ptr<NcclPair> pair_;
  PollLoop::Watch timeout_;
};

}  // namespace baton
