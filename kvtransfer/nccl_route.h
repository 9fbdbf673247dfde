// P's side of one pair of transport "nccl" (nccl.h): slices are gathered into batches, announced
// when their layer's event has passed, sent once D has taken them, complete when both ends say so.
// Handoff thread only.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvtransfer/dialler.h"
#include "kvtransfer/marked_stream.h"
#include "kvtransfer/message_stream.h"
#include "kvtransfer/nccl.h"
#include "kvtransfer/nccl_pair.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/wire.h"

namespace baton {

class NcclRoute final : public Route {
 public:
  NcclRoute(const TransportContext& context, std::shared_ptr<const NcclApi> api, int32_t ctas,
            LinkId link, const Offer& offer, std::vector<SocketAddress> addresses,
            RouteOwner& owner);
  bool has_room() const override;
  bool start(const Slice& slice) override;
  bool end() override;

 private:
  enum class State : uint8_t { kConnecting, kHello, kJoining, kMeasuring, kReady, kBroken };
  struct Batch {
    std::vector<Slice> slices;  // of the measurement: transfer 0, to scratch memory
    int64_t gate = 0;           // it may go once so many gates have opened
    int64_t bytes = 0;
    bool taken = false;  // some of it: it will be sent and stored
  };

  void say_hello(ScopedFd socket, const std::string& address);
  void fail(const Status& reason);
  Status on_message(std::string_view message);
  Status join();
  void on_joined();
  void add(const Slice& slice);
  void close_batch();
  bool before_sleep();
  void announce();
  Status take_answer(WireReader in);
  void finish_batches();
  void finish(const Batch& batch);

  void measure_next();
  void probe(int64_t bytes, int32_t slices, int32_t batches);

  const TransportContext& context_;
  const std::shared_ptr<const NcclApi> api_;
  const int32_t ctas_;
  const LinkId link_;
  const Nonce nonce_;
  RouteOwner& owner_;
  State state_ = State::kConnecting;
  Status broken_;                                   // why, once it is
  bool ended_ = false;                              // the owner has been told
  bool ours_ready_ = false, theirs_ready_ = false;  // the ends of the communicator

  Batch gathering_;
  std::deque<Batch> batches_;  // in order: sent or being sent, announced, waiting
  size_t announced_ = 0;       // of batches_
  size_t answered_ = 0;        // of them
  int64_t sent_ = 0;           // batches that have left and are not finished
  int64_t stored_ = 0;         // the same, that D has
  int64_t under_way_ = 0;      // taken and not finished
  int64_t unfinished_ = 0;     // slices
  void* waits_for_ = nullptr;  // the event that the gate is behind, until the next before_sleep()
  int64_t gates_ = 0;          // closed so far
  std::atomic<int64_t> opened_{0};

  size_t round_ = 0;  // of the measurement
  Stopwatch stopwatch_;
  Measurement measurement_;
  std::byte* scratch_ = nullptr;  // what the measurement sends, the pair's

  std::unique_ptr<MarkedStream> gate_;
  std::optional<Dialler> dialler_;  // until it is connected
  std::unique_ptr<MessageStream> control_;
  std::unique_ptr<NcclPair> pair_;
  PollLoop::Watch timeout_;
  PollLoop::Watch hook_;
};

}  // namespace baton
