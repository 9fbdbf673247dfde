// Transport "nccl" against a NCCL of the test's own (nccl_test_rig.h): what is stored, what is
// refused, and how it ends when something fails.
#include "kvtransfer/nccl.h"

#include <functional>

#include "kvtransfer/nccl_pair.h"
#include "kvtransfer/nccl_test_rig.h"
#include "kvtransfer/pusher.h"

#include "tests/doctest.h"

namespace baton {
TEST_CASE("nccl: pages arrive whole, and the pair has measured itself") {
  NcclRig rig;
  rig.attach();
  CHECK_GT(rig.ready->gbps, 0.0);
  CHECK_GT(rig.ready->latency_us, 0.0);
  rig.allow_all(1);
  std::vector<PushPage> pages;
  for (int32_t i = 0; i < kTestPages; ++i) pages.push_back({1, i % 2, i, kTestPages - 1 - i});
  for (const PushPage& page : pages)
    REQUIRE(rig.started(rig.page(1, page.group, page.src_page, page.dst_page)));
  REQUIRE(rig.run_until([&] { return rig.done == kTestPages; }));
  for (const PushPage& page : pages) CHECK(same_page(rig.from, rig.to, page));
  CHECK(rig.to.is_zero(0, 0));
  CHECK(rig.refused.empty());
}

TEST_CASE("nccl: D's kernels do not wait for P's computing") {
  NcclRig rig;
  rig.attach();
  rig.allow_all(1);
  const int32_t before = rig.nccl->groups;
  FakeEvent layer;
  Slice behind = rig.page(1, 0, 3, 4);
  behind.after = &layer;
  REQUIRE(rig.started(behind));
  REQUIRE(rig.started(rig.page(1, 0, 5, 6)));
  for (int32_t i = 0; i < 20; ++i) rig.loop.poll(false);
  CHECK_EQ(rig.nccl->groups, before);
  rig.memory.pass(layer);
  REQUIRE(rig.run_until([&] { return rig.done == 2; }));
  CHECK(same_page(rig.from, rig.to, {1, 0, 3, 4}));
}

TEST_CASE("nccl: of a batch D takes what is granted and refuses what is given up") {
  NcclRig rig;
  rig.attach();
  rig.allow_all(1);
  rig.allow_all(2);
  rig.grants.disallow(2);
  for (int32_t i = 0; i < 8; ++i)
    REQUIRE(rig.started(rig.page(1 + static_cast<uint64_t>(i) % 2, 0, i, i)));
  REQUIRE(rig.run_until([&] { return rig.done == 4 && rig.refused.size() == 4; }));
  CHECK_EQ(rig.refused, std::vector<TransferId>(4, 2));
  for (int32_t i = 0; i < 8; ++i) {
    if (i % 2 == 0) CHECK(same_page(rig.from, rig.to, {1, 0, i, i}));
    if (i % 2 == 1) CHECK(rig.to.is_zero(0, i));
  }
  // A batch of which nothing is taken is no batch of NCCL's.
  const int32_t before = rig.nccl->groups;
  REQUIRE(rig.started(rig.page(2, 0, 1, 1)));
  REQUIRE(rig.run_until([&] { return rig.refused.size() == 5; }));
  CHECK_EQ(rig.nccl->groups, before);
  REQUIRE(rig.started(rig.page(1, 0, 9, 9)));
  REQUIRE(rig.run_until([&] { return rig.done == 5; }));
}

TEST_CASE("nccl: a page outside its grant ends the pair") {
  NcclRig rig;
  rig.attach();
  rig.grants.allow(kDLink, 1, {{2}, {}});
  REQUIRE(rig.started(rig.page(1, 0, 1, 1)));
  REQUIRE(rig.run_until([&] { return !rig.broken.empty(); }));
  CHECK(rig.to.is_zero(0, 1));
  CHECK_EQ(rig.done, 0);
  REQUIRE(rig.run_until([&] { return rig.nccl->aborted == 2; }));
}

TEST_CASE(
    "nccl: a peer that forgets the link breaks it, and knows when nothing is stored any more") {
  NcclRig rig;
  rig.attach();
  rig.allow_all(1);
  rig.nccl->receiver_stalls = true;
  REQUIRE(rig.started(rig.page(1, 0, 1, 1)));
  REQUIRE(rig.run_until([&] { return rig.nccl->groups >= 2; }));
  rig.d.forget(kDLink);
  CHECK(rig.reported.empty());  // it has not ended yet
  REQUIRE(rig.run_until([&] { return !rig.reported.empty() && !rig.broken.empty(); }));
  CHECK_EQ(rig.nccl->aborted, 2);
  REQUIRE_EQ(rig.reported.size(), 1);
  CHECK_EQ(rig.reported[0].kind, MoverEvent::Kind::kStoresEnded);
  CHECK_EQ(rig.reported[0].link, kDLink);
  CHECK_EQ(rig.reported[0].transport, "nccl");
  CHECK_EQ(rig.done, 0);
  CHECK_FALSE(rig.route->has_room());
}

TEST_CASE("nccl: a receive whose sender has died is ended") {
  NcclRig rig;
  rig.attach();
  rig.allow_all(1);
  rig.nccl->kernels_hang = true;
  const int32_t before = rig.nccl->receives;
  REQUIRE(rig.started(rig.page(1, 0, 1, 1)));
  REQUIRE(rig.run_until([&] { return rig.nccl->receives > before; }));
  rig.route.reset();
  CHECK(rig.to.is_zero(0, 1));
  REQUIRE(rig.run_until([&] { return rig.nccl->aborted == 2; }));
  CHECK(rig.reported.empty());
  rig.d.forget(kDLink);
  REQUIRE(rig.run_until([&] { return rig.reported.size() == 1; }));
  CHECK_EQ(rig.reported[0].kind, MoverEvent::Kind::kStoresEnded);
}

TEST_CASE("nccl: a link without a pair has no end to tell") {
  NcclRig rig;
  rig.d.forget(kDLink);
  for (int32_t i = 0; i < 5; ++i) rig.loop.poll(false);
  CHECK(rig.reported.empty());
}

TEST_CASE("nccl: a communicator that cannot be made, or is not made in time") {
  {
    NcclRig rig;
    rig.nccl->begin_fails = true;
    rig.connect();
    REQUIRE(rig.run_until([&] { return !rig.broken.empty(); }));
    CHECK_EQ(rig.broken, "ncclCommInitRankConfig: injected");
  }
  {
    NcclRig rig(50);
    rig.nccl->never_joins = true;
    rig.connect();
    REQUIRE(rig.run_until([&] { return !rig.broken.empty(); }));
    REQUIRE(rig.run_until([&] { return rig.nccl->aborted == 2; }));
  }
  {
    NcclRig rig;  // nobody listens there
    rig.route = std::move(*rig.p.connect(kPLink, rig.offer, "127.0.0.1:9", rig));
    REQUIRE(rig.run_until([&] { return !rig.broken.empty(); }));
    CHECK_NE(rig.broken.find("127.0.0.1:9"), std::string::npos);
  }
}

TEST_CASE("nccl: an error of NCCL breaks the route once, after its end") {
  NcclRig rig;
  rig.attach();
  rig.allow_all(1);
  FakeEvent layer;
  Slice behind = rig.page(1, 0, 3, 4);
  behind.after = &layer;
  REQUIRE(rig.started(behind));
  rig.nccl->breaks = true;
  rig.memory.pass(layer);
  REQUIRE(rig.run_until([&] { return !rig.broken.empty(); }));
  CHECK_GE(rig.nccl->aborted, 1);
  CHECK_EQ(rig.done, 0);
}

TEST_CASE("nccl: few batches are under way at once, each bounded") {
  NcclRig rig;
  rig.attach();
  rig.allow_all(1);
  rig.nccl->receiver_stalls = true;
  const int32_t before = rig.nccl->sends;
  for (int32_t i = 0; i < 4000; ++i) REQUIRE(rig.started(rig.page(1, 0, i % 24, i % 24)));
  REQUIRE(rig.run_until([&] { return rig.nccl->sends > before; }));
  for (int32_t i = 0; i < 100; ++i) rig.loop.poll(false);
  CHECK_LE(rig.nccl->sends - before, static_cast<int32_t>(kNcclBatchesMax));
  CHECK_LE(rig.nccl->largest_group, static_cast<int32_t>(kNcclBatchSlicesMax));
  rig.nccl->receiver_stalls = false;
  REQUIRE(rig.run_until([&] { return rig.done == 4000; }));
}

TEST_CASE("nccl: detaching waits for the end of the pair, not the handoff thread") {
  NcclRig rig;
  const SystemClock clock;
  std::vector<MoverEvent> events;
  Pusher pusher({}, rig.from.layout, rig.from.borrowed, {&rig.p}, nullptr, clock,
                [&](MoverEvent event) { events.push_back(std::move(event)); });
  const auto run_until = [&](const std::function<bool()>& reached) {
    return rig.run_until([&] {
      pusher.pump();
      return reached();
    });
  };
  pusher.attach(kPLink, encode_offer(rig.offer), long_lease());
  REQUIRE(run_until([&] { return !events.empty(); }));
  REQUIRE_EQ(events[0].kind, MoverEvent::Kind::kAttached);
  rig.allow_all(1);
  rig.nccl->receiver_stalls = true;
  pusher.begin(5, kPLink, 1);
  pusher.push_pages({{5, 0, 1, 1}});
  REQUIRE(run_until([&] { return rig.nccl->groups > 0; }));
  pusher.detach(kPLink);
  CHECK_EQ(events.size(), 1);
  REQUIRE(run_until([&] { return events.size() == 3; }));
  CHECK_EQ(events[1].kind, MoverEvent::Kind::kFailed);
  CHECK_EQ(events[2].kind, MoverEvent::Kind::kDetached);
  CHECK_GE(rig.nccl->aborted, 1);
  pusher.begin(6, kPLink, 2);
  REQUIRE(run_until([&] { return events.size() == 4; }));
  CHECK_EQ(events[3].error, "link 7 is not attached");
}

TEST_CASE(
    "nccl: an abort that does not come back ends the handoff thread, which waits for nothing") {
  NcclRig rig;
  rig.nccl->aborts_hang = true;
  NcclPair pair(rig.nccl, rig.memory, rig.loop, {.ctas = 4, .end_timeout_ms = 50}, nullptr,
                {.made_id = [](const NcclId&) {}});
  REQUIRE(rig.run_until([&] { return rig.nccl->begun == 1; }));
  pair.end();
  pair.end();  // its time counts from the first
  CHECK_THROWS_WITH(rig.run_until([] { return false; }),
                    "nccl: a communicator has not ended 50 ms after its abort: its kernels may "
                    "still read or write");
  rig.nccl->let_aborts_end();
}

TEST_CASE("nccl: an abort that comes back in time ends its pair alone") {
  NcclRig rig;
  bool ended = false;
  NcclPair pair(rig.nccl, rig.memory, rig.loop, {.ctas = 4, .end_timeout_ms = 1000}, nullptr,
                {.made_id = [](const NcclId&) {}, .ended = [&] { ended = true; }});
  pair.end();
  REQUIRE(rig.run_until([&] { return ended; }));
  const PollLoop::Watch later = rig.loop.after_ms(1200, [&] { ended = false; });
  REQUIRE(rig.run_until([&] { return !ended; }));
}

}  // namespace baton
