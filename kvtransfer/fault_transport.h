// A decorator around any Transport that spoils P's copies by seed, for simulations and chaos tests:
// holds them back, has them refused, flips a byte on the way, breaks the connection. D's side
// passes through untouched. The inner transport's owner thread.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>

#include "kvtransfer/transport.h"

namespace baton {

// Shares are probabilities, 0 to 1, drawn per slice (connect_failure: per connection) from one
// generator: the same seed and the same order of calls give the same faults.
struct FaultPlan {
  uint64_t seed = 0;
  double delay_share = 0;  // starts delay_ms later, and what follows after it; needs a PollLoop
  int64_t delay_ms = 1;
  double refuse_share = 0;  // ends as if the peer had given up the grant, without being copied
  // One bit of the copy is wrong; the source stays as it is. Not of slices that wait for an event:
  // they cannot be read yet.
  double corrupt_share = 0;
  double break_share = 0;  // the connection is lost instead
  double connect_failure_share = 0;
};

struct FaultCounts {
  int64_t delayed = 0, refused = 0, corrupted = 0, broken = 0, connects_failed = 0;
};

class FaultTransport final : public Transport {
 public:
  // `loop` (may be null: no delays) and `memory` (what the pools are made of; null: the host's) are
  // borrowed.
  FaultTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan, PollLoop* loop,
                 HandoffMemory* memory = nullptr);
  ~FaultTransport() override;
  const char* name() const override { return inner_->name(); }
  bool stores_ourselves() const override { return inner_->stores_ourselves(); }
  std::string endpoint() const override { return inner_->endpoint(); }
  void forget(LinkId link) override { inner_->forget(link); }
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;
  const FaultCounts& counts() const { return counts_; }

 private:
  class FaultRoute;
  bool draw(double share) { return std::uniform_real_distribution<double>(0, 1)(random_) < share; }

  const std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  PollLoop* const loop_;
  HandoffMemory* const memory_;
  std::mt19937_64 random_;
  FaultCounts counts_;
};

}  // namespace baton
