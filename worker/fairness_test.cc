// Two routers at one worker: a flood from one must not starve the other, neither at P, where
// prompts wait for a place at D, nor at D, where they wait for pages.
#include "worker/test_core.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("P asks for room by turns, however many prompts one router has sent") {
  TestCore w;
  std::vector<SequenceSpec> loud;
  for (TokenId i = 0; i < 20; ++i) {
    loud.push_back(TestCore::sequence(i, 40, 10));
    w.send_prefill(loud.back());
  }
  std::vector<SequenceSpec> quiet;
  for (TokenId i = 30; i < 33; ++i) {
    quiet.push_back(TestCore::sequence(i, 40, 10, kOtherRouter));
    w.send_prefill(quiet.back());
  }
  // D has no room for any: each answer lets the next one ask (reserve_ahead is 1).
  std::vector<Epoch> asked;
  while (true) {
    const std::vector<Reserve> reserve = w.outbox.take<Reserve>(kDecode);
    if (reserve.empty()) break;
    REQUIRE(reserve.size() == 1);
    asked.push_back(reserve[0].id.id.router_epoch);
    w.receive(kDecode, Refuse{.id = reserve[0].id, .kind = Refuse::Kind::kFull});
  }
  REQUIRE(asked.size() == 23);
  CHECK(std::count(asked.begin(), asked.begin() + 7, kOtherRouter) == 3);
}

TEST_CASE("at P a high priority goes first, a low one is not forgotten") {
  TestCore w;
  std::vector<SequenceSpec> all;
  for (TokenId i = 0; i < 3; ++i) all.push_back(TestCore::sequence(i, 40, 10));
  all[1].spec.priority = 1;
  all[2].spec.priority = -1;
  w.send_prefill(TestCore::sequence(9, 40, 10));  // asks at once
  for (const SequenceSpec& s : all) w.send_prefill(s);
  std::vector<uint64_t> asked;
  for (int i = 0; i < 4; ++i) {
    const Reserve reserve = w.outbox.take<Reserve>(kDecode).at(0);
    asked.push_back(reserve.id.id.sequence);
    w.receive(kDecode, Refuse{.id = reserve.id, .kind = Refuse::Kind::kFull});
  }
  CHECK(asked == std::vector<uint64_t>{9000, 2000, 0, 1000});
}

TEST_CASE("D's oldest FULL goes first by turns of the routers") {
  WorkerConfig config = core_config();
  config.decode.max_granted_share = config.decode.max_landing_share = 1;
  TestCore w(16, config);
  const SequenceSpec holder = TestCore::sequence(50, 150, 10);
  w.send_open(holder);
  w.send_reserve(holder);
  const Grant held = w.outbox.take<Grant>(kPrefill).at(0);
  std::vector<SequenceSpec> all;
  for (TokenId i = 0; i < 10; ++i) all.push_back(TestCore::sequence(i, 150, 10));
  all.push_back(TestCore::sequence(20, 150, 10, kOtherRouter));
  const auto all_ask = [&] {
    for (const SequenceSpec& s : all) w.send_reserve(s);
  };
  for (const SequenceSpec& s : all) w.send_open(s);
  all_ask();
  CHECK(w.outbox.take<Refuse>(kPrefill).size() == all.size());
  // They have waited long enough by now; room for one at a time comes.
  std::vector<Epoch> order;
  w.wait_ms(config.decode.reserve_starve_ms + 1);
  all_ask();
  uint64_t slot_gen = held.slot_gen;
  while (!all.empty()) {
    w.receive(kPrefill, Drained{slot_gen});
    w.outbox.take<Refuse>(kPrefill);
    all_ask();
    const Grant grant = w.outbox.take<Grant>(kPrefill).at(0);
    slot_gen = grant.slot_gen;
    order.push_back(grant.id.id.router_epoch);
    w.receive(grant.id.id.router_epoch, Cancel{grant.id});
    std::erase_if(all, [&](const SequenceSpec& s) { return s.id == grant.id; });
  }
  w.receive(kPrefill, Drained{slot_gen});
  CHECK(std::count(order.begin(), order.begin() + 3, kOtherRouter) == 1);
  CHECK(w.pages_held() == 0);
}

}  // namespace
}  // namespace baton
