// What the dispatcher does about workers that are lost, stuck, or of different kinds.
#include "router/test_dispatcher.h"

#include "tests/doctest.h"

namespace baton {
namespace {

WorkerStatus busy(int64_t steps_done) {
  return {.running = 1, .waiting = 5, .queued_tokens = 100, .steps_done = steps_done};
}

// P and D of two model builds: links 1 and 2 are "old", 11 and 12 are "new".
struct TwoBuilds : DispatcherRig {
  TwoBuilds() {
    up(1, Role::kPrefill, "p-old", "old");
    up(2, Role::kDecode, "d-old", "old");
    up(11, Role::kPrefill, "p-new", "new");
    up(12, Role::kDecode, "d-new", "new");
  }
};

TEST_CASE("two builds side by side: pairs are of one kv_compat_id, whoever is cheapest") {
  TwoBuilds rig;
  for (int i = 0; i < 40; ++i) rig.submit(50 + i);
  const auto old_prefills = rig.outbox.take<Prefill>(1),
             new_prefills = rig.outbox.take<Prefill>(11);
  CHECK(old_prefills.size() + new_prefills.size() == 40);
  CHECK(old_prefills.size() > 10);
  CHECK(new_prefills.size() > 10);
  for (const Prefill& prefill : old_prefills) {
    CHECK(prefill.candidates == std::vector<std::string>{"d-old"});
  }
  for (const Prefill& prefill : new_prefills) {
    CHECK(prefill.candidates == std::vector<std::string>{"d-new"});
  }
}

TEST_CASE("the cheapest prefill worker without a mate does not make others prefill locally") {
  DispatcherRig rig;
  rig.up(1, Role::kPrefill, "p-old", "old");
  rig.up(2, Role::kDecode, "d-old", "old");
  rig.up(11, Role::kPrefill, "p-new", "new");
  rig.placement.add_load(1, 5000, 0);
  rig.submit(50);
  CHECK(rig.outbox.take<Prefill>(1).size() == 1);
}

TEST_CASE("all workers of one build lost: its requests get one clear error, the other goes on") {
  TwoBuilds rig;
  rig.submit(8);
  rig.submit(9);
  const AttemptId old_id = rig.outbox.take<Prefill>(1).at(0).id;
  const AttemptId new_id = rig.outbox.take<Prefill>(11).at(0).id;
  rig.token(1, old_id, 8, 50);
  rig.token(11, new_id, 9, 60);
  rig.token(12, new_id, 9, 60);
  rig.dispatcher.on_link_down(1, "test");
  rig.dispatcher.on_link_down(2, "test");
  rig.outbox.take<Open>(12);
  rig.wait_ms(rig.config.queue_wait_ms - 1);
  CHECK(rig.sink->failures.empty());
  rig.wait_ms(2);
  REQUIRE(rig.sink->failures.size() == 1);
  CHECK(rig.sink->failures[0].code() == Code::kUnavailable);
  CHECK(rig.sink->failures[0].message().find("kv_compat_id old") != std::string::npos);
  CHECK(rig.outbox.take<Open>(12).empty());  // its tokens are no start for the other build

  rig.token(12, new_id, 10, 61, 0, FinishReason::kStop);
  rig.submit(10);
  CHECK(rig.outbox.take<Prefill>(11).size() == 1);
  CHECK(rig.sink->failures.size() == 1);
}

TEST_CASE("a request without a token moves to the other build") {
  TwoBuilds rig;
  rig.submit(8);
  REQUIRE(rig.outbox.take<Prefill>(1).size() == 1);
  rig.dispatcher.on_link_down(1, "test");
  rig.dispatcher.on_link_down(2, "test");
  CHECK(rig.outbox.take<Prefill>(11).size() == 1);
}

TEST_CASE("a prefill worker that is alive and says nothing loses the request to another") {
  DispatcherRig rig;
  rig.up_all();
  rig.up(7, Role::kPrefill, "p2");
  rig.dispatcher.on_message(kP, WorkerStatus{});
  rig.submit(8);
  const AttemptId first = rig.outbox.take<Prefill>(kP).at(0).id;
  const int64_t wait_ms = rig.config.placed_wait_ms;
  SUBCASE("it is idle, as it says itself: it has lost the request") {
    for (int64_t ms = 0; ms < wait_ms; ms += 1000) {
      CHECK(rig.outbox.take<Prefill>(7).empty());
      rig.wait_ms(1000);
      rig.dispatcher.on_message(kP, WorkerStatus{});
    }
  }
  SUBCASE("it has work and does none") {
    for (int64_t ms = 0; ms < wait_ms; ms += 1000) {
      CHECK(rig.outbox.take<Prefill>(7).empty());
      rig.wait_ms(1000);
      rig.dispatcher.on_message(kP, busy(0));
    }
  }
  SUBCASE("it does not even send STATUS") {
    rig.wait_ms(wait_ms);
  }
  rig.wait_ms(wait_ms / 8);
  const auto second = rig.outbox.take<Prefill>(7);
  REQUIRE(second.size() == 1);
  CHECK(second[0].id.attempt == first.attempt + 1);
  CHECK(rig.outbox.take<Cancel>(kP).at(0).id == first);
  CHECK(rig.metric("baton_requests_unanswered_total") == 1);
}

TEST_CASE("a long queue that moves is no reason to go elsewhere") {
  DispatcherRig rig;
  rig.up_all();
  rig.up(7, Role::kPrefill, "p2");
  rig.submit(8);
  const AttemptId id = rig.outbox.take<Prefill>(kP).at(0).id;
  for (int64_t second = 0; second < 120; ++second) {
    rig.wait_ms(1000);
    rig.dispatcher.on_message(kP, busy(second));
  }
  CHECK(rig.outbox.take<Prefill>(7).empty());
  // Once it is placed, the request's own deadline is all there is.
  rig.dispatcher.on_message(kP, Placed{id, "d1"});
  for (int64_t ms = 0; ms < 2 * rig.config.placed_wait_ms; ms += 1000) {
    rig.wait_ms(1000);
    rig.dispatcher.on_message(kP, busy(120));
  }
  CHECK(rig.outbox.take<Prefill>(7).empty());
  CHECK(rig.sink->failures.empty());
}

TEST_CASE("without another prefill worker the decode worker computes for one that is stuck") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  REQUIRE(rig.outbox.take<Prefill>(kP).size() == 1);
  rig.outbox.take<Open>(kD1);
  rig.wait_ms(rig.config.placed_wait_ms + 2000);
  CHECK(rig.outbox.take<Prefill>(kP).empty());
  CHECK(rig.outbox.take<Open>(kD1).at(0).local);
}

TEST_CASE("a decode worker whose loop stands still loses what it decodes, and gets nothing new") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = rig.start();
  rig.token(kD1, id, 8, 50);
  for (const LinkId link : {kP, kD1, kD2}) rig.dispatcher.on_message(link, busy(1));
  rig.wait_ms(rig.config.placed_wait_ms / 2);
  for (const LinkId link : {kP, kD2}) rig.dispatcher.on_message(link, busy(2));
  rig.wait_ms(rig.config.placed_wait_ms * 3 / 4);
  CHECK(rig.outbox.take<Cancel>(kD1).at(0).id == id);
  const auto opens = rig.outbox.take<Open>(kD2);
  REQUIRE(opens.size() == 1);
  CHECK(opens[0].tokens.size() == 9);
  rig.submit(8);
  CHECK(rig.outbox.take<Open>(kD1).empty());
  rig.dispatcher.on_message(kD1, busy(2));
  rig.submit(8);
  CHECK(rig.outbox.take<Open>(kD1).size() == 1);
}

TEST_CASE("a worker whose clock is a little fast makes no bad request of a missed deadline") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  const Prefill prefill = rig.outbox.take<Prefill>(kP).at(0);
  CHECK(prefill.spec.deadline_ms == rig.config.request_timeout_ms);
  rig.dispatcher.on_message(kP, Usage{prefill.id, 0});
  rig.clock.advance_us(rig.config.request_timeout_ms * 1000 - 1000);
  rig.dispatcher.on_message(kP, Failed{prefill.id, false, "deadline"});
  REQUIRE(rig.sink->failures.size() == 1);
  CHECK(rig.sink->failures[0].code() == Code::kDeadlineExceeded);
}

TEST_CASE("a replay's deadline is what is left of the request's") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = rig.start();
  rig.clock.advance_us(5'000'000);
  rig.dispatcher.on_message(kD1, Failed{id, true, "test"});
  CHECK(rig.outbox.take<Prefill>(kP).at(0).spec.deadline_ms ==
        rig.config.request_timeout_ms - 5000);
}

TEST_CASE("P lost before its commit: another P, and nobody believes that D has the pages") {
  DispatcherRig rig;
  rig.up_all();
  rig.up(7, Role::kPrefill, "p2");
  rig.submit(40);
  const AttemptId first = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.dispatcher.on_message(kP, Placed{first, "d2"});
  rig.outbox.take<Open>(kD1);
  rig.outbox.take<Open>(kD2);
  rig.dispatcher.on_link_down(kP, "test");
  CHECK(rig.outbox.take<Cancel>(kD2).at(0).id == first);
  const auto prefill = rig.outbox.take<Prefill>(7);
  REQUIRE(prefill.size() == 1);
  CHECK(prefill[0].id.attempt == first.attempt + 1);
  CHECK(prefill[0].candidates.size() == 2);
  CHECK_FALSE(rig.outbox.take<Open>(kD2).at(0).local);
}

// A request that wants its prompt scored, decoding at D1: the attempt, before P has scored it.
AttemptId start_scored(DispatcherRig& rig) {
  GenerationRequest request = rig.request_of(4);
  request.prompt.insert(request.prompt.end(), {104, 105, 106, 107});
  request.spec.prompt_logprobs = 0;
  rig.dispatcher.submit(std::move(request), rig.sink);
  const AttemptId id = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.dispatcher.on_message(kP, Placed{id, "d1"});
  return id;
}

TEST_CASE(
    "tokens of the decode worker that overtake the prompt's log-probabilities wait for them") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = start_scored(rig);
  rig.token(kD1, id, 8, 50);
  rig.token(kD1, id, 9, 51, 0, FinishReason::kStop);
  CHECK(rig.sink->tokens.empty());
  PromptLogprobs scores{.id = id, .first_position = 1};
  for (TokenId token = 101; token < 108; ++token) scores.tokens.push_back({token, -1.0F});
  rig.dispatcher.on_message(kP, scores);
  CHECK(rig.sink->scored.size() == 7);
  CHECK(rig.sink->tokens[0] == std::vector<TokenId>{50, 51});
  CHECK(rig.sink->finished[0] == FinishReason::kStop);
  CHECK(rig.dispatcher.active() == 0);
}

TEST_CASE("a prefill worker lost before its log-probabilities came: the prompt is scored anew") {
  DispatcherRig rig;
  rig.up_all();
  rig.up(7, Role::kPrefill, "p2");
  const AttemptId id = start_scored(rig);
  rig.token(kD1, id, 8, 50);
  rig.dispatcher.on_link_down(kP, "test");
  const auto again = rig.outbox.take<Prefill>(7);
  REQUIRE(again.size() == 1);
  CHECK(again[0].spec.prompt_logprobs == 0);
  CHECK(rig.sink->tokens.empty());
}

}  // namespace
}  // namespace baton
