// The digest over a handoff's pages: made at P, compared at D, and a byte that changes on the way
// is found.
#include "kvtransfer/page_hasher.h"

#include <algorithm>

#include "kvtransfer/loopback.h"
#include "kvtransfer/mover.h"
#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Kind = MoverEvent::Kind;

// Two loopback movers, P's with a digest and with `faults` on its way.
struct DigestPair {
  explicit DigestPair(std::optional<FaultPlan> faults)
      : p(fabric, config(), pools_p.layout, pools_p.borrowed, clock, log_p.sink(),
          {.faults = faults}),
        d(fabric, config(), pools_d.layout, pools_d.borrowed, clock, log_d.sink()) {
    pools_p.fill(std::random_device()());
    p.attach(1, d.offer(2), long_lease());
    p.run_to_idle();
  }
  static KvTransferConfig config() {
    KvTransferConfig config;
    config.digest = true;
    return config;
  }
  MoverEvent send(const std::vector<PushPage>& pages) {
    p.begin(5, 1, 7);
    p.push(pages);
    p.finish(5, 0);
    p.run_to_idle();
    return log_p.wait(Kind::kDone);
  }
  bool intact(const std::vector<std::vector<int32_t>>& pages, const PagesDigest& want) {
    d.verify(7, pages, want);
    d.run_to_idle();
    const MoverEvent event = log_d.wait(Kind::kVerified);
    CHECK_EQ(event.slot_gen, 7);
    return event.intact;
  }

  FakeClock clock;
  LoopbackFabric fabric;
  TestPools pools_p, pools_d;
  EventLog log_p, log_d;
  LoopbackMover p, d;
};

const std::vector<PushPage> kPages = {{5, 0, 3, 9}, {5, 0, 4, 2}, {5, 1, 3, 11}};
const std::vector<std::vector<int32_t>> kGranted = {{9, 2}, {11}};

}  // namespace

TEST_CASE("pages that arrive as they were sent verify, whatever the order of their names") {
  DigestPair pair(std::nullopt);
  const MoverEvent done = pair.send(kPages);
  REQUIRE(done.digest.has_value());
  CHECK(pair.intact(kGranted, *done.digest));
  CHECK(pair.intact({{2, 9}, {11}}, *done.digest));
}

TEST_CASE("a bit that flips on the way, an exchanged page and a page that was not sent are found") {
  DigestPair corrupting(FaultPlan{.seed = 3, .corrupt_share = 1});
  CHECK_FALSE(corrupting.intact(kGranted, *corrupting.send(kPages).digest));

  DigestPair pair(std::nullopt);
  const MoverEvent done = pair.send(kPages);
  CHECK_FALSE(pair.intact({{9, 2, 5}, {11}}, *done.digest));
  CHECK_FALSE(pair.intact({{9}, {11}}, *done.digest));
  std::byte* const a = pair.pools_d.borrowed[0]->page(9);
  std::byte* const b = pair.pools_d.borrowed[0]->page(2);
  std::swap_ranges(a, a + pair.pools_d.borrowed[0]->page_bytes(), b);
  CHECK_FALSE(pair.intact(kGranted, *done.digest));
}

TEST_CASE("an aborted transfer's pages are hashed no further") {
  TestPools pools;
  HostPageHasher hasher(pools.borrowed);
  int32_t called = 0;
  hasher.hash(1, 0, 0, [&](const PagesDigest&) { ++called; });
  hasher.hash(2, 0, 1, [&](const PagesDigest&) { ++called; });
  hasher.cancel(1);
  while (hasher.pump()) {
  }
  CHECK_EQ(called, 1);
}

TEST_CASE("one pump hashes for a bounded time") {
  KvGroup group{.layers = {0}, .num_kv_heads = 8, .head_dim = 128, .page_tokens = 512};
  PagePool pool(group, 8, 0);
  REQUIRE(pool.page_bytes() >= 4 << 20);
  HostPageHasher hasher({&pool});
  int32_t called = 0;
  for (int32_t page = 0; page < 8; ++page)
    hasher.hash(1, 0, page, [&](const PagesDigest&) { ++called; });
  CHECK(hasher.pump());
  CHECK(called < 8);
}

TEST_CASE("over real transports a step's layers and whole pages make the digest that D finds") {
  for (const std::string transport : {"mapped", "tcp"}) {
    CAPTURE(transport);
    KvTransferConfig config;
    config.digest = true;
    TestPair pair(transport, config);
    REQUIRE_EQ(pair.attach().error, "");
    pair.allow_all(7);
    pair.p.mover->begin(5, TestPair::kPLink, 7);
    pair.p.mover->push({kPages[0]});
    pair.p.mover->finish(5, 1);
    pair.run_step(1, {kPages[1], kPages[2]});
    const MoverEvent done = pair.p.log.wait(Kind::kDone);
    REQUIRE(done.digest.has_value());
    pair.d.mover->verify(7, kGranted, *done.digest);
    CHECK(pair.d.log.wait(Kind::kVerified).intact);
    pair.d.mover->verify(8, kGranted, {done.digest->low + 1, done.digest->high});
    CHECK_FALSE(pair.d.log.wait(Kind::kVerified).intact);
  }
}

}  // namespace baton
