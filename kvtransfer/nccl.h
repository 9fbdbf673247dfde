// Transport "nccl": slices by NCCL's send and receive, between GPUs. Off by default. Its limits:
//   two-sided    its kernels take multiprocessors of D while D decodes (kvtransfer.nccl_ctas), and
//                wait there for P; D tells P that a batch has arrived, P's word alone counts
//                nothing
//   no fence     D checks each slice against its grants before it receives it; a receive that has
//                begun is not taken back by disallow(), only by the end of P's copies or of the
//                pair
//   dead peers   a kernel whose peer is gone or stands still runs until ncclCommAbort, which we
//                call when the connection closes; then D knows that nothing more is stored
//   pairs        a communicator, a thread of ours and NCCL's own buffers and threads for each link
//   NCCL's own   connections carry no proof of who opens them and no TLS
// Beside NCCL runs a connection of ours, of messages (u32 size, then a kind; little-endian):
//   P kHello{magic, version, nonce}   D kWelcome, or it closes
//   P kJoin{id of the communicator}   both join; D kReady
//   P kBatch{slices}                  D kTaken{a byte a slice: taken, or its grant is over}; then
//                                     D receives and P sends the taken ones, in their order
//                                     D kStored, once a batch with taken slices has arrived
//   P kMeasured                       D takes nothing into group kNcclProbeGroup any more
// A slice that no protocol could send closes the connection. P announces a batch only when its
// layer's event has passed, so that D's kernels wait for P's copies, not for P's computing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kvtransfer/data_listener.h"
#include "kvtransfer/nccl_api.h"
#include "kvtransfer/transport.h"

namespace baton {

enum class NcclMessage : uint8_t {
  kHello = 1,
  kWelcome,
  kJoin,
  kReady,
  kBatch,
  kTaken,
  kStored,
  kMeasured
};

inline constexpr uint32_t kNcclMagic = 0x4e4e5442;  // "BTNN"
inline constexpr uint16_t kNcclWireVersion = 1;
inline constexpr int32_t kNcclProbeGroup = -1;
inline constexpr size_t kNcclBatchSlicesMax = 512;
inline constexpr size_t kNcclBatchesMax = 4;  // announced and not arrived
// Making or ending a communicator takes seconds where the host is busy: so many attach timeouts.
inline constexpr int64_t kNcclPatienceTimeouts = 10;

struct NcclSlice {
  uint64_t slot_gen = 0;
  int64_t offset = 0;  // in the page
  int64_t bytes = 0;
  int32_t group = 0;
  int32_t page = 0;  // D's
};
static_assert(sizeof(NcclSlice) == 32);

class NcclReceiver;

// D's listener and pairs, and P's connect().
class NcclTransport final : public Transport {
 public:
  // The pages are on a GPU. Throws ConfigError when it cannot listen.
  NcclTransport(const TransportContext& context, std::shared_ptr<const NcclApi> api, int32_t ctas);
  ~NcclTransport() override;
  const char* name() const override { return "nccl"; }
  // Not by a closed connection alone: kStoresEnded says when.
  bool stores_ourselves() const override { return false; }
  std::string endpoint() const override { return listener_.endpoint(); }
  void forget(LinkId link) override;
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;

 private:
  struct Served {  // a link with a pair, until it is forgotten and the pair has ended
    int32_t pairs = 0;
    bool forgotten = false;
  };

  void on_accept(ScopedFd socket);
  void on_over(uint64_t id);
  void tell_if_ended(std::map<LinkId, Served>::iterator link);

  const TransportContext context_;
  const std::shared_ptr<const NcclApi> api_;
  const int32_t ctas_;
  uint64_t next_id_ = 1;
  std::map<LinkId, Served> served_;
  std::map<uint64_t, std::unique_ptr<NcclReceiver>> receivers_;
  DataListener listener_;
};

}  // namespace baton
