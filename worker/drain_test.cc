// A worker that has been told to leave, or whose engine has failed.
#include "worker/test_core.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("a draining worker takes nothing new and says so at once") {
  TestCore w;
  w.core.handle(DrainWish{});
  CHECK(w.outbox.take<Draining>(kRouter).size() == 1);
  CHECK(w.outbox.take<Draining>(kOtherRouter).size() == 1);
  w.core.handle(DrainWish{});
  CHECK(w.outbox.take<Draining>(kRouter).empty());

  w.send_prefill(TestCore::sequence(1, 40, 10));
  CHECK(w.outbox.take<Reserve>(kDecode).empty());
  CHECK(w.outbox.take<Refused>(kRouter).size() == 1);
  w.send_open(TestCore::sequence(2, 40, 10), /*local=*/true);
  CHECK(w.outbox.take<Refused>(kRouter).size() == 1);
  // One of several candidates: its P is sent on to the next one.
  w.send_open(TestCore::sequence(3, 40, 10));
  w.send_reserve(TestCore::sequence(3, 40, 10));
  const std::vector<Refuse> refused = w.outbox.take<Refuse>(kPrefill);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].kind == Refuse::Kind::kGone);
  CHECK(w.core.drained());
}

TEST_CASE("a router that connects during a drain hears of it") {
  TestCore w;
  w.core.handle(DrainWish{});
  w.core.handle(LinkEvent(LinkUp{3, {.epoch = 3, .role = Role::kRouter}, ""}));
  CHECK(w.outbox.take<Draining>(3).size() == 1);
}

TEST_CASE("a draining prefill worker waits until its pages have been taken") {
  TestCore w;
  const SequenceSpec s = TestCore::sequence(1, 80, 10);
  w.send_prefill(s);
  w.send_grant(s, 7);
  w.core.handle(DrainWish{});
  w.steps_until_idle();
  REQUIRE(w.at_prefill(s) == "transferring");
  CHECK_FALSE(w.core.drained());
  w.moved(MoverEvent::Kind::kDone, w.mover.finished.at(0));
  CHECK(w.outbox.take<Commit>(kDecode).size() == 1);
  CHECK_FALSE(w.core.drained());  // D may still say that it had given up the grant
  w.receive(kDecode, Ack{.slot_gen = 7});
  CHECK(w.core.drained());
  CHECK(w.outbox.take<Failed>(kRouter).empty());
}

TEST_CASE("a draining decode worker finishes what it can finish in time") {
  TestCore w;
  const SequenceSpec s = TestCore::sequence(1, 80, 20);
  w.send_open(s, /*local=*/true);
  w.core.handle(DrainWish{});
  w.wait_ms(w.config.drain_timeout_ms - w.config.drain_hand_back_ms - 1);
  w.steps_until_idle();
  CHECK(w.core.drained());
  CHECK(w.outbox.take<Failed>(kRouter).empty());
  CHECK(w.core.counters().handed_back == 0);
}

TEST_CASE("pages that a silent peer may still write to do not keep a worker from leaving") {
  TestCore w;
  const SequenceSpec s = TestCore::sequence(1, 80, 20);
  w.send_open(s);
  w.send_reserve(s);
  w.core.handle(LinkEvent(LinkDown{kPrefill, "silent"}));
  REQUIRE(w.ledger.counts(0).quarantined == 5);
  w.core.handle(DrainWish{});
  CHECK(w.core.drained());
}

TEST_CASE("what P has committed is not handed back: D decodes it") {
  TestCore w;
  const SequenceSpec s = TestCore::sequence(1, 80, 10);
  w.send_prefill(s);
  w.send_grant(s, 7);
  w.steps_until_idle();
  w.core.handle(DrainWish{});
  w.clock.advance_us((w.config.drain_timeout_ms - w.config.drain_hand_back_ms) * 1000 - 1000);
  w.moved(MoverEvent::Kind::kDone, w.mover.finished.at(0));
  w.wait_ms(1);
  CHECK(w.outbox.take<Failed>(kRouter).empty());
}

TEST_CASE("a failed engine: every router hears at once that its requests can go on elsewhere") {
  TestCore w;
  const SequenceSpec decoding = TestCore::sequence(1, 80, 100);
  const SequenceSpec prefilling = TestCore::sequence(2, 300, 10, kOtherRouter);
  w.send_open(decoding, /*local=*/true);
  w.steps.steps.clear();
  w.send_prefill(prefilling);
  StepOutput broken;
  broken.step = 1;
  broken.error = "device lost";
  w.core.handle(std::move(broken));
  CHECK(w.core.fatal_error() == "the engine: device lost");
  for (const auto& [router, id] :
       {std::pair(kRouter, decoding.id), {kOtherRouter, prefilling.id}}) {
    const std::vector<Failed> failed = w.outbox.take<Failed>(router);
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].id == id);
    CHECK(failed[0].retryable);
  }
}

TEST_CASE("a broken handoff thread ends the worker, and every attempt goes back to its router") {
  TestCore w(60);
  const SequenceSpec s = TestCore::sequence(1, 200, 400);
  w.send_prefill(s);
  w.send_grant(s, 7);
  w.step();
  w.core.handle(MoverEvent{.kind = MoverEvent::Kind::kBroken, .error = "push slices: lost"});
  CHECK(w.core.fatal_error() == "the handoff: push slices: lost");
  const std::vector<Failed> failed = w.outbox.take<Failed>(kRouter);
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].id == s.id);
  CHECK(failed[0].retryable);
}

}  // namespace
}  // namespace baton
