// P's state machine against transports of the test's own.
#include "kvtransfer/pusher.h"

#include <functional>

#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Kind = MoverEvent::Kind;

// Its routes tell nothing by themselves, except when one is destroyed: libraries make progress with
// all their connections while they close one.
class QuietTransport final : public Transport {
 public:
  const char* name() const override { return "quiet"; }
  bool stores_ourselves() const override { return false; }
  std::string endpoint() const override { return "here"; }
  void forget(LinkId) override {}
  Result<std::unique_ptr<Route>> connect(LinkId, const Offer&, const std::string&,
                                         RouteOwner& routes_owner) override {
    owner = &routes_owner;
    return std::unique_ptr<Route>(std::make_unique<QuietRoute>(*this));
  }

  RouteOwner* owner = nullptr;
  std::function<void()> at_end = [] {};  // of the next route that is destroyed

 private:
  class QuietRoute final : public Route {
   public:
    explicit QuietRoute(QuietTransport& transport) : transport_(transport) {}
    ~QuietRoute() override {
      std::exchange(transport_.at_end, [] {})();
    }
    bool has_room() const override { return true; }
    bool start(const Slice&) override { return false; }

   private:
    QuietTransport& transport_;
  };
};

struct QuietRig {
  void attach(LinkId link) {
    const Offer offer{.pools = geometry_of(pools.borrowed),
                      .endpoints = {{"quiet", transport.endpoint()}}};
    pusher.attach(link, encode_offer(offer), long_lease());
  }

  TestPools pools;
  SystemClock clock;
  QuietTransport transport;
  std::vector<MoverEvent> events;
  Pusher pusher{
      {}, pools.layout, pools.borrowed, {&transport}, nullptr, clock, [this](MoverEvent event) {
        events.push_back(std::move(event));
      }};
};

}  // namespace

TEST_CASE("what a link that is being attached tells while another one ends is not slept over") {
  for (const bool breaks : {true, false}) {
    CAPTURE(breaks);
    QuietRig rig;
    rig.attach(1);
    rig.attach(2);
    rig.transport.owner->route_broken(2, unavailable("the peer is gone"));
    rig.transport.at_end = [&] {
      if (breaks) rig.transport.owner->route_broken(1, unavailable("reset"));
      if (!breaks) rig.transport.owner->route_ready(1, {.gbps = 1, .latency_us = 1});
    };
    // As the handoff thread does: it sleeps when there is nothing more.
    while (rig.pusher.pump()) {
    }
    REQUIRE_EQ(rig.events.size(), 2);
    CHECK_EQ(rig.events[0].link, 2);
    CHECK_EQ(rig.events[1].link, 1);
    CHECK_EQ(rig.events[1].kind, breaks ? Kind::kAttachFailed : Kind::kAttached);
  }
}

}  // namespace baton
