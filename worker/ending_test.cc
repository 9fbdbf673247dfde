// What ends a request before it is finished, at every stage: its router's cancel, its deadline, the
// router's death, a drain that runs out of time. The pages are back as soon as the last step and
// the last copy that may touch them have ended, and the router hears what it must.
#include "worker/stages.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Runs `end` against a fresh worker at each stage.
void at_every_stage(
    int64_t deadline_ms,
    const std::function<void(TestCore&, const SequenceSpec&, const TestStage&)>& end) {
  for (const TestStage& stage : test_stages()) {
    CAPTURE(stage.name);
    CAPTURE(stage.at_prefill);
    TestCore w(60);
    SequenceSpec s = TestCore::sequence(1, 200, 400);
    s.spec.deadline_ms = deadline_ms;
    stage.reach(w, s);
    REQUIRE((stage.at_prefill ? w.at_prefill(s) : w.at_decode(s)) == stage.name);
    end(w, s, stage);
  }
}

TEST_CASE("a decode worker's wrong grant was told as the request's fault") {
  for (const std::vector<int32_t>& pages :
       {std::vector<int32_t>(13, 4), std::vector<int32_t>{1, 2}}) {  // one page twice, too few
    TestCore w;
    const SequenceSpec s = TestCore::sequence(1, 200, 20);
    w.send_prefill(s);
    w.receive(kDecode, Grant{.id = s.id, .slot_gen = 7, .groups = {{.page_ids = pages}}});
    const std::vector<Failed> failed = w.outbox.take<Failed>(kRouter);
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].retryable);
    CHECK(failed[0].message.find("the decode worker's grant: ") == 0);
    CHECK(w.outbox.take<Drained>(kDecode).size() == 1);
    CHECK(w.at_prefill(s).empty());
  }
}

TEST_CASE("cancelled at every stage: nothing is left, nothing is said") {
  at_every_stage(1000, [](TestCore& w, const SequenceSpec& s, const TestStage& stage) {
    w.receive(kRouter, Cancel{s.id});
    stage.settle(w, s);
    CHECK(w.nothing_left());
    CHECK(w.outbox.take<Failed>(kRouter).empty());
    w.wait_ms(5000);  // its deadline
    CHECK(w.outbox.take<Failed>(kRouter).empty());
  });
}

TEST_CASE("a deadline at every stage: one final FAILED, and nothing is left") {
  at_every_stage(1000, [](TestCore& w, const SequenceSpec& s, const TestStage& stage) {
    w.wait_ms(999);
    CHECK(w.outbox.take<Failed>(kRouter).empty());
    w.wait_ms(1);
    const std::vector<Failed> failed = w.outbox.take<Failed>(kRouter);
    REQUIRE(failed.size() == 1);
    CHECK(failed[0].id == s.id);
    CHECK_FALSE(failed[0].retryable);
    CHECK(failed[0].message.starts_with("deadline"));
    stage.settle(w, s);
    CHECK(w.nothing_left());
    CHECK(w.core.counters().deadlines_missed == 1);
  });
}

TEST_CASE("its router dies at every stage: nothing is left") {
  at_every_stage(1000, [](TestCore& w, const SequenceSpec& s, const TestStage& stage) {
    w.core.handle(LinkEvent(LinkDown{kRouter, "gone"}));
    w.core.prepare_steps();
    stage.settle(w, s);
    w.steps_until_idle();
    CHECK(w.nothing_left());
  });
}

TEST_CASE("handed back at every stage when the drain runs out of time") {
  at_every_stage(0, [](TestCore& w, const SequenceSpec& s, const TestStage& stage) {
    w.core.handle(DrainWish{});
    w.wait_ms(w.config.drain_timeout_ms - w.config.drain_hand_back_ms - 1);
    w.wait_ms(1);
    std::vector<Failed> failed = w.outbox.take<Failed>(kRouter);
    std::erase_if(failed, [&](const Failed& f) { return f.id != s.id; });
    const std::vector<Refused> refused = w.outbox.take<Refused>(kRouter);
    REQUIRE(failed.size() + refused.size() == 1);  // REFUSED: a grant that did not begin in time
    if (!failed.empty()) CHECK(failed[0].retryable);
    stage.settle(w, s);
    w.wait_ms(w.config.prefill.reserve_wait_ms + 1);  // for a RESERVE that nobody answers
    CHECK(w.core.drained());
    CHECK(w.pages_held() == 0);
  });
}

}  // namespace
}  // namespace baton
