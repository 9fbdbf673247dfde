// P's side of one ucx connection: slices cut into pieces, a bounded window of them, completed by
// D's answers. Handoff thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/probe.h"
#include "kvtransfer/ucx.h"
#include "kvtransfer/wire.h"

namespace baton {

class UcxRoute final : public Route {
 public:
  static Result<std::unique_ptr<Route>> connect(UcxTransport& transport, LinkId link,
                                                const Offer& offer,
                                                const std::string& worker_address,
                                                RouteOwner& owner);
  ~UcxRoute() override;
  bool has_room() const override {
    return state_ == State::kReady && waiting_.empty() && pieces_.size() < kWindow;
  }
  bool start(const Slice& slice) override;

  // From UcxTransport: a message for this route, read up to its nonce.
  void on_message(uint16_t message, WireReader& in);

 private:
  static constexpr size_t kWindow = 256;  // pieces, as many as UCX's queue to a peer holds
  enum class State : uint8_t { kHello, kPinging, kMeasuring, kReady, kBroken };
  struct Copy {  // of one slice
    Slice slice;
    int64_t begun = 0;  // bytes handed to pieces
    int64_t open = 0;   // pieces not ended
    bool refused = false;
  };
  struct Piece {
    std::shared_ptr<Copy> copy;
    std::string header;
    bool sent = false;
    bool answered = false;
  };

  UcxRoute(UcxTransport& transport, LinkId link, const Offer& offer, RouteOwner& owner);
  void fail(const std::string& reason);
  void send_hello();
  void send_pieces();
  void send_piece(const std::shared_ptr<Copy>& copy);
  void on_welcome(WireReader& in);
  void on_answers(WireReader& in);
  void end_if_over(uint64_t number);
  void end_copy(const Copy& copy);
  void probe(int64_t bytes, int32_t count);
  void end_probe();

  UcxTransport& transport_;
  const LinkId link_;
  const OfferKeys keys_;
  RouteOwner& owner_;
  const uint64_t id_;
  uint64_t connection_ = 0;  // D's number
  State state_ = State::kHello;
  std::string hello_;
  std::deque<std::shared_ptr<Copy>> waiting_;  // the first may have been begun
  uint64_t next_piece_ = 1;
  std::map<uint64_t, Piece> pieces_;  // in flight, by number
  std::vector<std::byte> probe_;
  int32_t pings_left_ = kProbePings;
  int32_t probes_open_ = 0;
  Stopwatch stopwatch_;
  Measurement measurement_;
  PollLoop::Watch timeout_;
  std::unique_ptr<UcxEndpoint> endpoint_;  // last: its end runs on_sent of what is in flight
};

}  // namespace baton
