// The real mover, two of them in this process: every transport moves the same bytes and keeps the
// same promises.
#include "kvtransfer/mover.h"

#include <algorithm>

#include "kvtransfer/fault_transport.h"
#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Kind = MoverEvent::Kind;

const std::vector<std::string> kTransports = {"mapped", "ucx", "tcp"};

// Random pages of both groups, each once.
std::vector<PushPage> random_pages(TransferId transfer, int32_t count, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<PushPage> pages;
  for (int32_t group = 0; group < 2; ++group) {
    std::vector<int32_t> from(kTestPages);
    for (int32_t i = 0; i < kTestPages; ++i) from[i] = i;
    std::vector<int32_t> to = from;
    std::shuffle(from.begin(), from.end(), random);
    std::shuffle(to.begin(), to.end(), random);
    for (int32_t i = 0; i < count; ++i) pages.push_back({transfer, group, from[i], to[i]});
  }
  return pages;
}

}  // namespace

TEST_CASE("pages arrive whole, by layers of a step and as complete pages") {
  for (const std::string& transport : kTransports) {
    const uint64_t seed = std::random_device()();
    CAPTURE(transport);
    CAPTURE(seed);
    TestPair pair(transport);
    const MoverEvent attached = pair.attach();
    REQUIRE_EQ(attached.error, "");
    CHECK_EQ(attached.transport, transport);
    CHECK_EQ(attached.link, TestPair::kPLink);
    CHECK_GT(attached.gbps, 0.0);
    CHECK_GT(attached.latency_us, 0.0);

    pair.allow_all(1);
    const std::vector<PushPage> pages = random_pages(5, 20, seed);
    const std::vector<PushPage> cached(pages.begin(), pages.begin() + 10);
    const std::vector<PushPage> computed(pages.begin() + 10, pages.end());
    pair.p.mover->begin(5, TestPair::kPLink, 1);
    pair.p.mover->push(cached);
    pair.p.mover->finish(5, 3);
    pair.run_step(3, computed);
    CHECK_EQ(pair.p.log.wait(Kind::kDone).transfer, 5);
    pair.d.mover->disallow(1);  // as D does before it reads the pages
    for (const PushPage& page : pages) CHECK(same_page(pair.p.pools, pair.d.pools, page));
    int32_t untouched = 0;
    for (int32_t page = 0; page < kTestPages; ++page) untouched += pair.d.pools.is_zero(1, page);
    CHECK_EQ(untouched, kTestPages - 20);
  }
}

TEST_CASE("only the slices of layers that are written go") {
  for (const std::string& transport : kTransports) {
    CAPTURE(transport);
    TestPair pair(transport);
    REQUIRE_EQ(pair.attach().error, "");
    pair.allow_all(1);
    pair.p.mover->begin(5, TestPair::kPLink, 1);
    StepInput input;
    input.step = 1;
    input.pushes = {{5, 1, 0, 0}};
    pair.p.mover->layer_written(input, 0);  // not of group 1
    pair.p.mover->layer_written(input, 3);  // its second layer
    pair.p.mover->finish(5, 0);
    pair.p.log.wait(Kind::kDone);
    pair.d.mover->disallow(1);
    const PagePool& from = *pair.p.pools.borrowed[1];
    const PagePool& to = *pair.d.pools.borrowed[1];
    const int64_t layer_bytes = pair.p.pools.layout.groups[1].layer_bytes();
    std::vector<std::byte> want(static_cast<size_t>(from.page_bytes()));
    std::memcpy(want.data() + layer_bytes, from.page(0) + layer_bytes,
                static_cast<size_t>(layer_bytes));
    CHECK_EQ(std::memcmp(to.page(0), want.data(), want.size()), 0);
  }
}

TEST_CASE("finish waits for its last step, also for one that carries nothing") {
  TestPair pair("mapped");
  REQUIRE_EQ(pair.attach().error, "");
  pair.p.mover->begin(5, TestPair::kPLink, 1);
  pair.p.mover->finish(5, 2);
  pair.run_step(1, {{5, 0, 1, 1}});
  pair.p.mover->begin(6, TestPair::kPLink, 1);
  pair.p.mover->finish(6, 0);
  CHECK_EQ(pair.p.log.wait(Kind::kDone).transfer, 6);  // 5 is still waiting for step 2
  pair.run_step(2, {});
  CHECK_EQ(pair.p.log.wait(Kind::kDone).transfer, 5);
}

TEST_CASE("a transfer ends by one event: abort, then nothing") {
  for (const std::string& transport : kTransports) {
    CAPTURE(transport);
    TestPair pair(transport);
    REQUIRE_EQ(pair.attach().error, "");
    pair.allow_all(1);
    pair.p.mover->begin(5, TestPair::kPLink, 1);
    pair.p.mover->push(random_pages(5, 20, 1));
    pair.p.mover->abort(5);
    pair.p.mover->finish(5, 0);
    pair.p.mover->push({{5, 0, 1, 1}});
    CHECK_EQ(pair.p.log.wait(Kind::kAborted).transfer, 5);
    pair.p.mover->abort(5);
    pair.p.mover->detach(TestPair::kPLink);
    pair.p.log.wait(Kind::kDetached);
    CHECK(pair.p.log.all().empty());
  }
}

TEST_CASE("nothing starts once the lease has run out") {
  for (const std::string& transport : kTransports) {
    CAPTURE(transport);
    TestPair pair(transport);
    REQUIRE_EQ(pair.attach().error, "");
    pair.allow_all(1);
    pair.lease->store(pair.clock.now_us() - 1);
    pair.p.mover->begin(5, TestPair::kPLink, 1);
    pair.p.mover->push({{5, 0, 1, 1}});
    pair.p.mover->finish(5, 0);
    CHECK_EQ(pair.p.log.wait(Kind::kFailed).error, "the lease ran out");
    CHECK(pair.d.pools.is_zero(0, 1));
  }
}

TEST_CASE("detach fails the transfers first; a later one fails at once") {
  for (const std::string& transport : kTransports) {
    CAPTURE(transport);
    TestPair pair(transport);
    REQUIRE_EQ(pair.attach().error, "");
    pair.allow_all(1);
    pair.p.mover->begin(5, TestPair::kPLink, 1);
    pair.p.mover->push(random_pages(5, 20, 1));
    pair.p.mover->detach(TestPair::kPLink);
    pair.p.log.wait(Kind::kDetached);
    const std::vector<MoverEvent> events = pair.p.log.all();  // what came before it
    REQUIRE_EQ(events.size(), 1);
    CHECK_EQ(events[0].kind, Kind::kFailed);
    pair.p.mover->begin(6, TestPair::kPLink, 1);
    pair.p.log.wait(Kind::kFailed);
    CHECK_EQ(pair.p.log.wait(Kind::kFailed).error, "link 7 is not attached");
  }
}

TEST_CASE("a peer that forgets the link breaks it") {
  for (const std::string& transport : kTransports) {
    CAPTURE(transport);
    TestPair pair(transport);
    REQUIRE_EQ(pair.attach().error, "");
    pair.p.mover->begin(5, TestPair::kPLink, 1);
    pair.d.mover->forget(TestPair::kDLink);
    CHECK_EQ(pair.p.log.wait(Kind::kFailed).transfer, 5);
    CHECK_EQ(pair.p.log.wait(Kind::kAttachFailed).link, TestPair::kPLink);
  }
}

TEST_CASE("tcp: a grant that is over takes nothing, and its sender is told") {
  TestPair pair("tcp");
  CHECK(pair.d.mover->stores_ourselves("tcp"));
  REQUIRE_EQ(pair.attach().error, "");
  pair.allow_all(1);
  pair.d.mover->disallow(1);
  pair.p.mover->begin(5, TestPair::kPLink, 1);
  pair.p.mover->push({{5, 0, 1, 1}});
  pair.p.mover->finish(5, 0);
  CHECK_EQ(pair.p.log.wait(Kind::kFailed).error, "the peer has given up this grant");
  CHECK(pair.d.pools.is_zero(0, 1));
  // The connection goes on for others.
  pair.allow_all(2);
  pair.p.mover->begin(6, TestPair::kPLink, 2);
  pair.p.mover->push({{6, 0, 1, 1}});
  pair.p.mover->finish(6, 0);
  CHECK_EQ(pair.p.log.wait(Kind::kDone).transfer, 6);
}

TEST_CASE("tcp: an address behind which somebody else answers leaves the next one its turn") {
  TestPair pair("tcp");
  TestEnd other({.transports = "tcp"}, pair.clock);
  Offer offer = *decode_offer(pair.d.mover->offer(TestPair::kDLink));
  std::string& at = offer.endpoints[0].address;
  at = decode_offer(other.mover->offer(1))->endpoints[0].address + "," + at;
  pair.p.mover->attach(TestPair::kPLink, encode_offer(offer), pair.lease);
  CHECK_EQ(pair.p.log.wait_any().error, "");
}

TEST_CASE("tcp: a page outside its grant closes the connection") {
  TestPair pair("tcp");
  REQUIRE_EQ(pair.attach().error, "");
  pair.d.mover->allow(TestPair::kDLink, 1, {{2}, {}});
  pair.p.mover->begin(5, TestPair::kPLink, 1);
  pair.p.mover->push({{5, 0, 1, 1}});
  CHECK_EQ(pair.p.log.wait(Kind::kFailed).transfer, 5);
  CHECK(pair.d.pools.is_zero(0, 1));
}

TEST_CASE(
    "attach takes the first transport that works, and refuses what is too slow or not the required "
    "one") {
  SystemClock clock;
  TestEnd d({.transports = "tcp"}, clock);
  TestEnd p({.transports = "mapped,tcp"}, clock);
  p.mover->attach(1, d.mover->offer(1), long_lease());
  CHECK_EQ(p.log.wait(Kind::kAttached).transport, "tcp");

  TestEnd slow({.transports = "mapped,tcp", .min_gbps = 1e6}, clock);
  slow.mover->attach(1, d.mover->offer(2), long_lease());
  const std::string error = slow.log.wait(Kind::kAttachFailed).error;
  CHECK_NE(error.find("mapped: not offered"), std::string::npos);
  CHECK_NE(error.find("kvtransfer.min_gbps"), std::string::npos);

  TestEnd strict({.transports = "mapped,tcp", .require = "mapped"}, clock);
  strict.mover->attach(1, d.mover->offer(3), long_lease());
  CHECK_EQ(strict.log.wait(Kind::kAttachFailed).error, "mapped: not offered by the peer");
}

TEST_CASE("a required transport that cannot be used here is a mistake in the configuration") {
  SystemClock clock;
  TestPools pools;
  CHECK_THROWS_WITH_AS(
      make_page_mover({.transports = "mapped,tcp", .require = "nccl"}, pools.layout, pools.borrowed,
                      "127.0.0.1", clock, [](const MoverEvent&) {}),
      "kvtransfer.require: got \"nccl\", which cannot be used here: see the log's "
      "transport_unavailable",
      ConfigError);
}

TEST_CASE("a required transport need not be listed") {
  SystemClock clock;
  TestEnd d({.transports = "mapped", .require = "tcp"}, clock);
  TestEnd p({.transports = "mapped", .require = "tcp"}, clock);
  p.mover->attach(1, d.mover->offer(1), long_lease());
  CHECK_EQ(p.log.wait(Kind::kAttached).transport, "tcp");
}

TEST_CASE("delayed copies arrive, and a connection lost in the middle fails what is left") {
  const SystemClock clock;
  TestPools from;
  TestPools to;
  from.fill(5);
  EventLog log;
  const Mover::Decorator decorator = [](std::unique_ptr<Transport> inner, PollLoop& loop) {
    const FaultPlan plan{.seed = 1, .delay_share = 0.5, .break_share = 0.05};
    return std::make_unique<FaultTransport>(std::move(inner), plan, &loop);
  };
  for (const std::string& transport : kTransports) {
    CAPTURE(transport);
    Mover p({.transports = transport}, from.layout, from.borrowed, "127.0.0.1", clock, log.sink(),
            decorator);
    Mover d({.transports = transport}, to.layout, to.borrowed, "127.0.0.1", clock,
            [](const MoverEvent&) {});
    p.attach(1, d.offer(2), long_lease());
    REQUIRE_EQ(log.wait(Kind::kAttached).error, "");
    for (TransferId transfer = 1;; ++transfer) {  // until the draw that breaks it
      REQUIRE_LT(transfer, 1000);
      const PushPage page{transfer, 0, static_cast<int32_t>(transfer % kTestPages),
                          static_cast<int32_t>(transfer % 7)};
      d.allow(2, transfer, {{page.dst_page}, {}});
      p.begin(transfer, 1, transfer);
      p.push({page});
      p.finish(transfer, 0);
      const MoverEvent ended = log.wait_any();
      if (ended.kind == Kind::kFailed) break;
      REQUIRE_EQ(ended.kind, Kind::kDone);
      d.disallow(transfer);
      CHECK(same_page(from, to, page));
    }
    CHECK_EQ(log.wait(Kind::kAttachFailed).link, 1);
  }
}

TEST_CASE("unknown transports are a configuration error") {
  SystemClock clock;
  CHECK_THROWS_AS(TestEnd({.transports = "pigeon"}, clock), ConfigError);
}

}  // namespace baton
