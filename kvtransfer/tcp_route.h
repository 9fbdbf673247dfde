// P's side of one tcp data connection: a bounded window of frames, completed in order by D's
// answers. Handoff thread only.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "kvtransfer/probe.h"
#include "kvtransfer/tcp.h"

namespace baton {

class TcpRoute final : public Route {
 public:
  TcpRoute(const TransportContext& context, LinkId link, const Offer& offer,
           std::vector<SocketAddress> addresses, RouteOwner& owner);
  bool has_room() const override;
  bool start(const Slice& slice) override;

 private:
  enum class State : uint8_t { kConnecting, kHello, kPinging, kMeasuring, kReady, kBroken };
  struct Outgoing {
    TcpFrame frame;
    const std::byte* src = nullptr;
    TransferId transfer = 0;
  };

  void try_next_address();
  void note_failure(const std::string& failure);
  void give_up_address();
  Status too_late() const;
  void fail(const Status& reason);
  void on_ready(uint32_t epoll_events);
  Status advance(uint32_t epoll_events);
  Status send_hello();
  Status flush_hello();
  Status flush_frames();
  void send_probe(int64_t bytes, int32_t count);
  bool send_next_round();
  void add(const Outgoing& outgoing);
  Status flush();
  Status read_answers();
  Status take_answer(TcpAnswer answer);
  void take_probe_answer();

  const TransportContext& context_;
  const LinkId link_;
  const Nonce nonce_;
  RouteOwner& owner_;
  std::vector<SocketAddress> addresses_;  // not yet tried
  State state_ = State::kConnecting;
  std::string hello_;            // what is not sent of it
  std::deque<Outgoing> frames_;  // not answered; the first sent_frames_ have been sent whole
  size_t sent_frames_ = 0;
  int64_t sent_bytes_ = 0;    // of the next one, header included
  int64_t unsent_bytes_ = 0;  // payloads of those not sent whole
  std::string failures_;      // of the addresses tried
  std::vector<std::byte> probe_;
  int32_t pings_left_ = kProbePings;
  size_t round_ = 0;         // of the measurement, the next one
  int64_t round_bytes_ = 0;  // of the one under way
  std::string address_;      // being tried
  Stopwatch stopwatch_;
  Measurement measurement_;
  std::unique_ptr<ByteStream> stream_;
  PollLoop::Watch timeout_;
  PollLoop::Watch watch_;
};

}  // namespace baton
