// Transport "ucx": slices as active messages of UCX. Over POSIX shared memory (this build) UCX can
// put only into memory that it has allocated itself, and our slabs are memfds; so a slice travels
// in pieces through UCX's segments, and D stores each piece itself, only into granted pages, and
// answers it. P's copies complete by that answer, never by UCX's own completion.
//
// Messages (header; payload), little-endian:
//   kHello    P -> D  {connect nonce, route}; P's worker address
//   kWelcome  D -> P  {route, proof nonce, connection}
//   kPiece    P -> D  {connection, connect nonce, piece}; bytes
//   kAnswers  D -> P  {route, proof nonce, up to kUcxAnswersMax of {piece number, stored?}}
//   kGoodbye  D -> P  {route, proof nonce}: the connection is over
// The nonces say in each message that it comes from the peer of that link: any process of this user
// could send to our worker.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/transport.h"
#include "kvtransfer/ucx_worker.h"

namespace baton {

enum UcxMessage : uint16_t { kUcxHello = 1, kUcxWelcome, kUcxPiece, kUcxAnswers, kUcxGoodbye };

struct UcxPiece {
  uint64_t number = 0;  // the route's
  uint64_t slot_gen = 0;
  int64_t offset = 0;  // in the page
  int32_t group = 0;   // kUcxProbeGroup: the measurement, stored nowhere
  int32_t page = 0;    // D's
};
inline constexpr int32_t kUcxProbeGroup = -1;

struct UcxAnswer {
  uint64_t piece = 0;
  uint64_t stored = 0;  // 0 or 1
};
inline constexpr size_t kUcxAnswersMax = 128;

class UcxRoute;

class UcxTransport final : public Transport {
 public:
  // kUnavailable where UCX or its shared memory cannot be used.
  static Result<std::unique_ptr<UcxTransport>> make(const TransportContext& context);
  ~UcxTransport() override;
  const char* name() const override { return "ucx"; }
  bool stores_ourselves() const override { return true; }
  std::string endpoint() const override { return endpoint_; }
  void forget(LinkId link) override;
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;

 private:
  friend class UcxRoute;
  struct Connection {  // D's side of one peer
    LinkId link = 0;
    OfferKeys keys;
    uint64_t route = 0;  // P's number
    bool broken = false;
    std::vector<UcxAnswer> answers;  // not yet sent
    std::unique_ptr<UcxEndpoint> endpoint;
  };
  struct Hello {
    OfferBook::Found found;
    uint64_t route = 0;
    std::string address;
  };

  UcxTransport(const TransportContext& context, std::unique_ptr<UcxWorker> worker);
  bool before_sleep();
  void welcome(const Hello& hello);
  void close(Connection& connection);
  void send_answers(Connection& connection);
  void on_hello(std::string_view header, std::string_view payload);
  void on_piece(std::string_view header, std::string_view payload);
  GrantBoard::Verdict store(const Connection& connection, const UcxPiece& piece,
                            std::string_view bytes);

  const TransportContext context_;
  std::unique_ptr<UcxWorker> worker_;
  std::string endpoint_;
  std::vector<Hello>
      hellos_;  // endpoints are not made inside progress(): these wait for before_sleep()
  uint64_t next_connection_ = 1;
  std::map<uint64_t, Connection> connections_;
  uint64_t next_route_ = 1;
  std::map<uint64_t, UcxRoute*> routes_;  // P's side; each takes itself out
  PollLoop::Watch watch_;
  PollLoop::Watch sleep_hook_;
};

}  // namespace baton
