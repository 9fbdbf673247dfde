#include "router/test_dispatcher.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

TEST_CASE("a request opens at the candidates, prefills at P, and ends in order") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8, 3);
  const auto open1 = rig.outbox.take<Open>(kD1), open2 = rig.outbox.take<Open>(kD2);
  const auto prefill = rig.outbox.take<Prefill>(kP);
  REQUIRE(open1.size() == 1);
  REQUIRE(open2.size() == 1);
  REQUIRE(prefill.size() == 1);
  CHECK_FALSE(open1[0].local);
  CHECK(prefill[0].candidates == std::vector<std::string>{"d1", "d2"});
  CHECK(prefill[0].prompt_len == 8);
  const AttemptId id = prefill[0].id;

  rig.dispatcher.on_message(kP, Placed{id, "d2"});
  CHECK(rig.outbox.take<Close>(kD1).size() == 1);
  CHECK(rig.outbox.take<Close>(kD2).empty());
  rig.token(kP, id, 8, 50);
  rig.token(kD2, id, 8, 50);  // D repeats P's token
  rig.token(kD2, id, 9, 51);
  rig.token(kD2, id, 10, 52, 0, FinishReason::kLength);
  CHECK(rig.sink->tokens[0] == Tokens{50, 51, 52});
  CHECK(rig.sink->workers == std::vector<std::string>{"p>", "p>d2"});
  CHECK(rig.sink->finished[0] == FinishReason::kLength);
  CHECK(rig.dispatcher.active() == 0);
  CHECK(rig.dispatcher.waiting() == 0);
  CHECK(rig.outbox.empty());
}

TEST_CASE("a request whose messages would be too long for a link is named before it is sent") {
  SamplingSpec spec;
  CHECK(Dispatcher::sendable(spec, 1'000'000).ok());
  spec.bad_words.assign(256, std::vector<TokenId>(30'000));
  CHECK(Dispatcher::sendable(spec, 10).code() == Code::kInvalidArgument);
}

TEST_CASE("a token of D may come before P's, and before PLACED") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  const AttemptId id = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.token(kD1, id, 9, 51);
  CHECK(rig.sink->tokens[0].empty());
  CHECK(rig.outbox.take<Close>(kD2).size() == 1);
  rig.token(kP, id, 8, 50);
  CHECK(rig.sink->tokens[0] == Tokens{50, 51});
}

TEST_CASE("the end at P's first token closes the decode worker") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = rig.start();
  rig.token(kP, id, 9, 2, 0, FinishReason::kStop);
  CHECK(rig.outbox.take<Close>(kD1).size() == 1);
  CHECK(rig.dispatcher.active() == 0);
}

TEST_CASE(
    "short prompts, and all while no prefill worker is up, are prefilled by the decode worker") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(3);
  CHECK(rig.outbox.take<Open>(kD1).at(0).local);
  CHECK(rig.outbox.empty());
  rig.dispatcher.on_link_down(kP, "test");
  rig.submit(500);
  auto opens = rig.outbox.take<Open>(kD1);
  for (Open& open : rig.outbox.take<Open>(kD2)) opens.push_back(open);
  REQUIRE(opens.size() == 1);
  CHECK(opens[0].local);
}

TEST_CASE("max_tokens 1 needs no decode worker") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8, 1);
  const auto prefill = rig.outbox.take<Prefill>(kP);
  REQUIRE(prefill.size() == 1);
  CHECK(prefill[0].candidates.empty());
  CHECK(rig.outbox.empty());
  rig.token(kP, prefill[0].id, 8, 50, 0, FinishReason::kLength);
  CHECK(rig.sink->finished.size() == 1);
  CHECK(rig.dispatcher.active() == 0);
}

TEST_CASE("the death of the decode worker replays from the accepted tokens") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId first = rig.start();
  rig.token(kD1, first, 8, 50);
  rig.token(kD1, first, 9, 51);
  rig.dispatcher.on_link_down(kD1, "test");

  CHECK(rig.outbox.take<Cancel>(kP).at(0).id == first);
  const Open open = rig.outbox.take<Open>(kD2).at(0);
  const Prefill prefill = rig.outbox.take<Prefill>(kP).at(0);
  CHECK(open.id.id == first.id);
  CHECK(open.id.attempt == first.attempt + 1);
  CHECK(prefill.prompt_len == 8);
  CHECK(prefill.tokens.size() == 10);
  CHECK(prefill.tokens.back() == 51);
  CHECK(prefill.spec.seed == 7);

  rig.token(kP, first, 10, 999);  // of the old attempt: stale
  rig.token(kP, open.id, 10, 52);
  rig.token(kD2, open.id, 10, 52);
  rig.token(kD2, open.id, 11, 53, 0, FinishReason::kStop);
  CHECK(rig.sink->tokens[0] == Tokens{50, 51, 52, 53});
  CHECK(rig.sink->failures.empty());
}

TEST_CASE("with n = 2 each unfinished choice is replayed as a request of its own") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId first = rig.start(2);
  rig.token(kD1, first, 9, 60, 0);
  rig.token(kD1, first, 9, 61, 1);
  rig.token(kD1, first, 10, 70, 1);
  rig.dispatcher.on_link_down(kD1, "test");

  const auto opens = rig.outbox.take<Open>(kD2);
  REQUIRE(opens.size() == 2);
  for (int32_t choice = 0; choice < 2; ++choice) {
    const Open& open = opens[static_cast<size_t>(choice)];
    CHECK(open.id.id != first.id);
    CHECK(open.spec.n == 1);
    CHECK(open.spec.first_choice == choice);
    CHECK(open.prompt_len == 8);
  }
  CHECK(opens[0].tokens.size() == 10);
  CHECK(opens[1].tokens.size() == 11);
  rig.token(kD2, opens[0].id, 10, 80, 0, FinishReason::kLength);
  CHECK(rig.dispatcher.active() == 1);
  rig.token(kD2, opens[1].id, 11, 81, 1, FinishReason::kLength);
  CHECK(rig.sink->tokens[0] == Tokens{50, 60, 80});
  CHECK(rig.sink->tokens[1] == Tokens{51, 61, 70, 81});
  CHECK(rig.dispatcher.active() == 0);
}

TEST_CASE("the death of P matters until the decode worker has spoken") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = rig.start();
  SUBCASE("before") {
    rig.dispatcher.on_link_down(kP, "test");
    const auto cancelled = rig.outbox.take<Cancel>(kD1);
    REQUIRE(cancelled.size() == 1);
    auto opens = rig.outbox.take<Open>(kD1);
    for (Open& open : rig.outbox.take<Open>(kD2)) opens.push_back(open);
    REQUIRE(opens.size() == 1);
    CHECK(opens[0].local);
    CHECK(opens[0].tokens.size() == 9);
  }
  SUBCASE("after") {
    rig.token(kD1, id, 8, 50);
    rig.dispatcher.on_link_down(kP, "test");
    CHECK(rig.outbox.empty());
    rig.token(kD1, id, 9, 51, 0, FinishReason::kStop);
    CHECK(rig.sink->tokens[0] == Tokens{50, 51});
  }
}

TEST_CASE("REFUSED is tried again after the time it names, as a new attempt") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  const AttemptId first = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.dispatcher.on_message(kP, Refused{first, 50, "full"});
  CHECK(rig.outbox.take<Cancel>(kD1).size() == 1);
  rig.outbox.take<Open>(kD1);
  rig.wait_ms(40);
  CHECK(rig.outbox.take<Prefill>(kP).empty());
  rig.wait_ms(20);
  const auto second = rig.outbox.take<Prefill>(kP);
  REQUIRE(second.size() == 1);
  CHECK(second[0].id.attempt == first.attempt + 1);
  // The client hears of it only when the wait is over.
  rig.dispatcher.on_message(kP, Refused{second[0].id, 50, "full"});
  rig.wait_ms(rig.config.queue_wait_ms);
  REQUIRE(rig.sink->failures.size() == 1);
  CHECK(rig.sink->failures[0].code() == Code::kUnavailable);
  CHECK(rig.dispatcher.active() == 0);
}

TEST_CASE("cancel reaches everybody who knows of the request") {
  DispatcherRig rig;
  rig.up_all();
  const GenerationId generation = rig.submit(8);
  rig.dispatcher.cancel(generation);
  CHECK(rig.outbox.take<Cancel>(kP).size() == 1);
  CHECK(rig.outbox.take<Cancel>(kD1).size() == 1);
  CHECK(rig.outbox.take<Cancel>(kD2).size() == 1);
  CHECK(rig.dispatcher.active() == 0);
  CHECK(rig.dispatcher.waiting() == 0);
  CHECK(rig.placement.find(kP)->prefill_tokens == 0);
  CHECK(rig.placement.find(kD1)->choices == 0);
}

TEST_CASE("a stop string ends one choice at the workers, the others go on") {
  DispatcherRig rig;
  rig.up_all();
  rig.sink->stop_at[0] = 60;
  const AttemptId id = rig.start(2);
  rig.token(kD1, id, 9, 60, 0);
  const auto cancels = rig.outbox.take<Cancel>(kD1);
  REQUIRE(cancels.size() == 1);
  CHECK(cancels[0].choice == 0);
  rig.token(kD1, id, 10, 61, 0);  // was under way
  rig.token(kD1, id, 9, 70, 1, FinishReason::kStop);
  CHECK(rig.sink->tokens[0] == Tokens{50, 60});
  CHECK(rig.sink->tokens[1] == Tokens{51, 70});
  CHECK(rig.dispatcher.active() == 0);
}

TEST_CASE("with all workers gone a request waits for one to come back, then gives up") {
  DispatcherRig rig;
  rig.up(kD1, Role::kDecode, "d1");
  rig.submit(8);
  const AttemptId id = rig.outbox.take<Open>(kD1).at(0).id;
  rig.token(kD1, id, 8, 50);
  rig.dispatcher.on_link_down(kD1, "test");
  rig.wait_ms(1000);
  CHECK(rig.sink->failures.empty());
  SUBCASE("it comes back") {
    rig.up(7, Role::kDecode, "d1");
    const auto opens = rig.outbox.take<Open>(7);
    REQUIRE(opens.size() == 1);
    CHECK(opens[0].tokens.size() == 9);
  }
  SUBCASE("another model build comes up: tokens of the two do not mix") {
    rig.up(7, Role::kDecode, "d1", "other");
    CHECK(rig.outbox.take<Open>(7).empty());
  }
  SUBCASE("nobody comes") {
    rig.wait_ms(rig.config.queue_wait_ms);
    REQUIRE(rig.sink->failures.size() == 1);
    CHECK(rig.sink->failures[0].code() == Code::kUnavailable);
    CHECK(rig.sink->failures[0].message().find("no worker") != std::string::npos);
  }
}

TEST_CASE("recovery ends after so many losses") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  for (int i = 0; i <= rig.config.recovery_attempts_max; ++i) {
    const auto prefill = rig.outbox.take<Prefill>(kP);
    REQUIRE(prefill.size() == 1);
    CHECK(rig.sink->failures.empty());
    rig.dispatcher.on_message(kP, Failed{prefill[0].id, true, "broken"});
    if (i > 0)
      CHECK(rig.outbox.take<Prefill>(kP).empty());  // a pause: the worker may be coming back
    if (i > 0) rig.wait_ms(1000);
  }
  REQUIRE(rig.sink->failures.size() == 1);
  CHECK(rig.sink->failures[0].code() == Code::kUnavailable);
  CHECK(rig.sink->failures[0].message().find("broken") != std::string::npos);
}

TEST_CASE("a request that gets on between its losses is not given up (a router that stood still)") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  for (int i = 0; i < 3 * rig.config.recovery_attempts_max; ++i) {
    const auto prefill = rig.outbox.take<Prefill>(kP);
    REQUIRE(prefill.size() == 1);
    rig.token(kP, prefill[0].id, 8 + i, 50);
    rig.dispatcher.on_message(kP, Failed{prefill[0].id, true, "broken"});
  }
  CHECK(rig.sink->failures.empty());
}

TEST_CASE("a failure that cannot be retried is told at once") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = rig.start();
  rig.dispatcher.on_message(kD1, Failed{id, false, "NaN"});
  REQUIRE(rig.sink->failures.size() == 1);
  CHECK(rig.sink->failures[0].code() == Code::kInternal);
}

TEST_CASE("the queue is bounded") {
  RouteConfig route = test_route();
  route.queue_max = 2;
  DispatcherRig rig(route);
  CHECK(rig.dispatcher.admit(2).status.ok());
  rig.submit(8);
  CHECK(rig.dispatcher.admit(1).status.ok());
  rig.submit(8);
  CHECK(rig.dispatcher.admit(1).status.code() == Code::kResourceExhausted);
  rig.up_all();  // both are placed, but have no token so far
  CHECK(rig.dispatcher.admit(1).status.code() == Code::kResourceExhausted);
  rig.token(kP, rig.outbox.take<Prefill>(kP).at(0).id, 8, 50);
  CHECK(rig.dispatcher.admit(1).status.ok());
}

TEST_CASE("a request has so much time in all") {
  DispatcherRig rig;
  rig.up_all();
  const AttemptId id = rig.start();
  rig.wait_ms(rig.config.request_timeout_ms);
  REQUIRE(rig.sink->failures.size() == 1);
  CHECK(rig.sink->failures[0].code() == Code::kDeadlineExceeded);
  CHECK(rig.outbox.take<Cancel>(kD1).at(0).id == id);
}

TEST_CASE("a replay tells prompt logprobs and cached tokens once") {
  DispatcherRig rig;
  rig.up_all();
  rig.submit(8);
  const AttemptId first = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.dispatcher.on_message(kP, Usage{first, 4});
  rig.dispatcher.on_message(kP, PromptLogprobs{first, 0, {{100, 0}, {101, -1}}, {}});
  rig.dispatcher.on_link_down(kD1, "test");
  rig.dispatcher.on_link_down(kD2, "test");
  rig.up(kD2 + 1, Role::kDecode, "d3");
  const AttemptId second = rig.outbox.take<Prefill>(kP).at(0).id;
  rig.dispatcher.on_message(kP, Usage{second, 8});
  rig.dispatcher.on_message(kP, PromptLogprobs{second, 0, {{100, 0}, {101, -1}, {102, -2}}, {}});
  CHECK(rig.sink->cached == std::vector<int32_t>{4});
  CHECK(rig.sink->scored == Tokens{100, 101, 102});
}

}  // namespace
}  // namespace baton
