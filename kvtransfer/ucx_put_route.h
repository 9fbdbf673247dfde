// P's side of one connection of ucx_put.h: slices wait for their layer's event, are put, a bounded
// number at a time, and are done when a flush behind them has ended: that a put has ended says only
// that its source is free. Handoff thread only.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/ucx_put.h"
#include "kvtransfer/wire.h"

namespace baton {

class UcxPutRoute final : public Route {
 public:
  static Result<std::unique_ptr<Route>> connect(UcxPutTransport& transport, LinkId link,
                                                const Offer& offer,
                                                const std::string& worker_address,
                                                RouteOwner& owner);
  // Waits for puts under way, for kDrainMs at most; end() first, and there is nothing to wait for.
  ~UcxPutRoute() override;
  bool has_room() const override {
    return state_ == State::kReady && waiting_.size() < kWaitingMax;
  }
  bool start(const Slice& slice) override;
  bool end() override;

  // From UcxPutTransport: a message for this route, read up to its nonce.
  void on_message(uint16_t message, WireReader& in, std::string_view payload);
  // Outside of UCX's progress: starts what may start, ends what has to end. True: the owner has
  // been told something.
  bool turn();
  bool puts_under_way() const { return puts_open_ > 0 || flush_open_; }

 private:
  static constexpr size_t kWaitingMax = 1 << 15;  // slices: two steps of 8k tokens and some
  static constexpr size_t kPutsMax = 256;         // put and not flushed
  static constexpr int64_t kDrainMs = 1000;
  enum class State : uint8_t {
    kHello,
    kChallenging,
    kChecking,
    kPinging,
    kMeasuring,
    kReady,
    kDraining,
    kBroken
  };
  struct Waiting {
    Slice slice;
    int64_t mark = 0;
  };
  struct Region {  // of D's memory
    uint64_t address = 0;
    std::string key;
  };

  UcxPutRoute(UcxPutTransport& transport, LinkId link, const Offer& offer, RouteOwner& owner);
  void fail(const std::string& reason);
  void send_hello();
  void say(UcxPutMessage message, std::string header);
  void on_welcome(WireReader& in, std::string_view payload);
  Status take_memory(WireReader& in);
  Status challenge();
  void put_scratch(int64_t from, int64_t to, int64_t bytes);
  void probe(int64_t bytes, int32_t count);
  void put(const UcxMemory& from, const std::byte* src, int64_t bytes, const UcxRemoteMemory& into,
           uint64_t to);
  void put_slice(const Slice& slice);
  void flush();
  void on_put(const Status& status);
  void on_flushed(const Status& status);
  void on_probe_flushed();
  void close();

  UcxPutTransport& transport_;
  const LinkId link_;
  const OfferKeys keys_;
  const std::vector<PoolGeometry> pools_;  // D's
  RouteOwner& owner_;
  const uint64_t id_;
  State state_ = State::kHello;
  std::string broken_reason_;
  std::string hello_;
  uint64_t connection_ = 0;  // D's number
  uint32_t slot_ = 0;
  Nonce challenge_{};
  std::deque<Waiting> waiting_;
  std::vector<TransferId> posted_;    // put, behind the last flush
  std::vector<TransferId> flushing_;  // put before the flush that is under way
  bool unflushed_ = false;            // something has been put behind the last flush
  bool flush_open_ = false;
  int64_t puts_open_ = 0;
  // What UCX's callbacks find us by; null once we have closed the endpoint.
  const std::shared_ptr<UcxPutRoute*> self_ = std::make_shared<UcxPutRoute*>(this);
  bool told_ = false;  // the owner, since the last turn()
  int32_t pings_left_ = kProbePings;
  int32_t rounds_left_ = 3;  // the fastest counts
  Stopwatch stopwatch_;
  Measurement measurement_;
  PollLoop::Watch timeout_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  std::unique_ptr<UcxRemoteMemory> remote_scratch_;
  std::vector<std::vector<std::unique_ptr<UcxRemoteMemory>>> remote_;  // by kv_group and slab
};

}  // namespace baton
