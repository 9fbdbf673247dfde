// The simulator's mover: every copy when the test says so, the same promises as the real one.
#include "kvtransfer/loopback.h"

#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Kind = MoverEvent::Kind;

struct LoopbackEnd {
  LoopbackEnd(LoopbackFabric& fabric, const Clock& clock, LoopbackOptions options)
      : mover(
            fabric, {}, pools.layout, pools.borrowed, clock,
            [this](MoverEvent event) { events.push_back(event); }, options) {}
  std::vector<Kind> kinds() const {
    std::vector<Kind> kinds;
    for (const MoverEvent& event : events) kinds.push_back(event.kind);
    return kinds;
  }
  TestPools pools;
  std::vector<MoverEvent> events;
  LoopbackMover mover;
};

struct LoopbackPair {
  explicit LoopbackPair(LoopbackOptions options = {})
      : p(fabric, clock, options), d(fabric, clock, options) {
    p.pools.fill(7);
    p.mover.attach(1, d.mover.offer(2), lease);
    p.mover.run_to_idle();
    REQUIRE_EQ(p.kinds(), std::vector{Kind::kAttached});
    p.events.clear();
  }
  FakeClock clock;
  std::shared_ptr<std::atomic<int64_t>> lease = long_lease();
  LoopbackFabric fabric;
  LoopbackEnd p;
  LoopbackEnd d;
};

}  // namespace

TEST_CASE("a copy takes two steps; abort and detach wait for it or end it") {
  LoopbackPair pair;
  pair.p.mover.begin(5, 1, 1);
  pair.p.mover.push({{5, 0, 3, 4}, {5, 0, 4, 5}});
  REQUIRE(pair.p.mover.step());  // page 4 half way
  CHECK_FALSE(same_page(pair.p.pools, pair.d.pools, {5, 0, 3, 4}));
  CHECK_FALSE(pair.d.pools.is_zero(0, 4));
  pair.p.mover.abort(5);
  pair.p.mover.deliver_events();
  CHECK(pair.p.events.empty());  // its last copy has not ended
  pair.p.mover.run_to_idle();
  CHECK_EQ(pair.p.kinds(), std::vector{Kind::kAborted});
  CHECK(same_page(pair.p.pools, pair.d.pools, {5, 0, 3, 4}));
  CHECK(pair.d.pools.is_zero(0, 5));

  pair.p.events.clear();
  pair.p.mover.begin(6, 1, 1);
  pair.p.mover.push({{6, 0, 1, 1}});
  pair.p.mover.step();
  pair.p.mover.detach(1);
  pair.p.mover.run_to_idle();
  CHECK_EQ(pair.p.kinds(), std::vector{Kind::kFailed, Kind::kDetached});
  CHECK_FALSE(same_page(pair.p.pools, pair.d.pools, {6, 0, 1, 1}));
}

TEST_CASE("a stalled process ends the copy that it was in, and starts none after its lease") {
  LoopbackPair pair;
  pair.lease->store(pair.clock.now_us() + 1000);
  pair.p.mover.begin(5, 1, 1);
  pair.p.mover.push({{5, 0, 1, 1}, {5, 0, 2, 2}});
  pair.p.mover.step();
  pair.p.mover.set_stalled(true);
  CHECK_FALSE(pair.p.mover.step());
  pair.d.mover.forget(2);
  pair.clock.advance_us(5000);
  pair.p.mover.set_stalled(false);
  pair.p.mover.run_to_idle();
  CHECK(same_page(pair.p.pools, pair.d.pools, {5, 0, 1, 1}));  // the danger that quarantine is for
  CHECK(pair.d.pools.is_zero(0, 2));
  CHECK_EQ(pair.p.kinds(), std::vector{Kind::kFailed, Kind::kAttachFailed});
}

TEST_CASE("death is heard by every peer that was attached, also after forget") {
  LoopbackPair pair;
  pair.d.mover.forget(2);
  pair.p.mover.kill();
  CHECK_FALSE(pair.p.mover.step());
  pair.d.mover.run_to_idle();
  REQUIRE_EQ(pair.d.kinds(), std::vector{Kind::kPeerDead});
  CHECK_EQ(pair.d.events[0].link, 2);
}

TEST_CASE("a dead target breaks the link") {
  LoopbackPair pair;
  pair.p.mover.begin(5, 1, 1);
  pair.p.mover.push({{5, 0, 1, 1}});
  pair.d.mover.kill();
  pair.p.mover.run_to_idle();
  CHECK_EQ(pair.p.kinds(), std::vector{Kind::kFailed, Kind::kAttachFailed});
}

TEST_CASE("storing ourselves: given up in mid-copy means no store afterwards") {
  LoopbackPair pair({.stores_ourselves = true});
  pair.d.mover.allow(2, 1, {{1}, {}});
  pair.p.mover.begin(5, 1, 1);
  pair.p.mover.push({{5, 0, 1, 1}});
  pair.p.mover.step();
  CHECK_FALSE(pair.d.pools.is_zero(0, 1));
  pair.d.mover.disallow(1);
  pair.p.mover.run_to_idle();
  CHECK_FALSE(same_page(pair.p.pools, pair.d.pools, {5, 0, 1, 1}));
  CHECK_EQ(pair.p.kinds(), std::vector{Kind::kFailed});
}

TEST_CASE("injected faults repeat with their seed; a corrupted copy leaves its source alone") {
  const auto run = [](uint64_t seed) {
    LoopbackPair pair(
        {.faults = FaultPlan{.seed = seed, .refuse_share = 0.1, .corrupt_share = 0.3}});
    TestPools before;
    before.fill(7);
    std::string outcome;
    for (TransferId transfer = 1; transfer <= kTestPages; ++transfer) {
      const PushPage page{transfer, 1, static_cast<int32_t>(transfer - 1),
                          static_cast<int32_t>(transfer - 1)};
      pair.p.mover.begin(transfer, 1, 1);
      pair.p.mover.push({page});
      pair.p.mover.finish(transfer, 0);
      pair.p.mover.run_to_idle();
      outcome += pair.p.events.back().kind == Kind::kFailed ? 'r'
                 : same_page(before, pair.d.pools, page)    ? '.'
                                                            : 'c';
      CHECK(same_page(before, pair.p.pools, page));
    }
    return outcome;
  };
  const std::string outcome = run(3);
  CHECK_EQ(outcome, run(3));
  CHECK_NE(outcome, run(4));
  CHECK_NE(outcome.find('r'), std::string::npos);
  CHECK_NE(outcome.find('c'), std::string::npos);
  CHECK_NE(outcome.find('.'), std::string::npos);
}

}  // namespace baton
