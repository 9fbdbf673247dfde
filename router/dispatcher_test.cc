#include "router/dispatcher.h"

#include "router/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr LinkId kP = 1, kD1 = 2, kD2 = 3;

RouteConfig test_route() {
  RouteConfig route;
  route.local_prompt_tokens = 4;
  return route;
}

// A dispatcher with one prefill and two decode workers, none of them real.
struct Bench {
  explicit Bench(RouteConfig route = test_route()) : config(std::move(route)) {}

  void up(LinkId link, Role role, const std::string& id, const std::string& compat = "m") {
    dispatcher.on_link_up(link, {.worker_id = id,
                                 .epoch = link,
                                 .role = role,
                                 .kv_compat_id = compat,
                                 .context_len = 1000});
  }
  void up_all() {
    up(kP, Role::kPrefill, "p");
    up(kD1, Role::kDecode, "d1");
    up(kD2, Role::kDecode, "d2");
  }
  GenerationId submit(int32_t prompt_len, int32_t max_tokens = 10, int32_t n = 1) {
    GenerationRequest request;
    request.spec.n = n;
    request.spec.seed = 7;
    request.spec.max_tokens = max_tokens;
    for (int32_t i = 0; i < prompt_len; ++i) request.prompt.push_back(100 + i);
    return dispatcher.submit(std::move(request), sink);
  }
  void token(LinkId from, const AttemptId& id, int32_t position, TokenId token, int32_t choice = 0,
             FinishReason finish = FinishReason::kNone) {
    dispatcher.on_message(from, Events{{{.id = id,
                                         .choice = choice,
                                         .position = position,
                                         .token = token,
                                         .finish = finish}}});
  }
  void wait_ms(int64_t ms) {
    clock.advance_us(ms * 1000);
    dispatcher.on_timer();
  }
  // Submits a prompt of 8 tokens and lets D1 have it, with P's first token 50.
  AttemptId start(int32_t n = 1) {
    submit(8, 10, n);
    const AttemptId id = outbox.take<Prefill>(kP).at(0).id;
    dispatcher.on_message(kP, Placed{id, "d1"});
    for (int32_t choice = 0; choice < n; ++choice) token(kP, id, 8, 50 + choice, choice);
    outbox.take<Open>(kD1);
    outbox.take<Open>(kD2);
    outbox.take<Close>(kD2);
    return id;
  }

  RouteConfig config;
  FakeClock clock;
  FakeOutbox outbox;
  RouterMetrics metrics{"m"};
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  Placement placement{config, 1};
  Dispatcher dispatcher{config, 99, outbox, clock, placement, metrics};
};

using Tokens = std::vector<TokenId>;

TEST_CASE("a request opens at the candidates, prefills at P, and ends in order") {
  Bench bench;
  bench.up_all();
  bench.submit(8, 3);
  const auto open1 = bench.outbox.take<Open>(kD1), open2 = bench.outbox.take<Open>(kD2);
  const auto prefill = bench.outbox.take<Prefill>(kP);
  REQUIRE(open1.size() == 1);
  REQUIRE(open2.size() == 1);
  REQUIRE(prefill.size() == 1);
  CHECK_FALSE(open1[0].local);
  CHECK(prefill[0].candidates == std::vector<std::string>{"d1", "d2"});
  CHECK(prefill[0].prompt_len == 8);
  const AttemptId id = prefill[0].id;

  bench.dispatcher.on_message(kP, Placed{id, "d2"});
  CHECK(bench.outbox.take<Close>(kD1).size() == 1);
  CHECK(bench.outbox.take<Close>(kD2).empty());
  bench.token(kP, id, 8, 50);
  bench.token(kD2, id, 8, 50);  // D repeats P's token
  bench.token(kD2, id, 9, 51);
  bench.token(kD2, id, 10, 52, 0, FinishReason::kLength);
  CHECK(bench.sink->tokens[0] == Tokens{50, 51, 52});
  CHECK(bench.sink->finished[0] == FinishReason::kLength);
  CHECK(bench.dispatcher.active() == 0);
  CHECK(bench.dispatcher.waiting() == 0);
  CHECK(bench.outbox.empty());
}

TEST_CASE("a request whose messages would be too long for a link is named before it is sent") {
  SamplingSpec spec;
  CHECK(Dispatcher::sendable(spec, 1'000'000).ok());
  spec.bad_words.assign(256, std::vector<TokenId>(30'000));
  CHECK(Dispatcher::sendable(spec, 10).code() == Code::kInvalidArgument);
}

TEST_CASE("a token of D may come before P's, and before PLACED") {
  Bench bench;
  bench.up_all();
  bench.submit(8);
  const AttemptId id = bench.outbox.take<Prefill>(kP).at(0).id;
  bench.token(kD1, id, 9, 51);
  CHECK(bench.sink->tokens[0].empty());
  CHECK(bench.outbox.take<Close>(kD2).size() == 1);
  bench.token(kP, id, 8, 50);
  CHECK(bench.sink->tokens[0] == Tokens{50, 51});
}

TEST_CASE("the end at P's first token closes the decode worker") {
  Bench bench;
  bench.up_all();
  const AttemptId id = bench.start();
  bench.token(kP, id, 9, 2, 0, FinishReason::kStop);
  CHECK(bench.outbox.take<Close>(kD1).size() == 1);
  CHECK(bench.dispatcher.active() == 0);
}

TEST_CASE(
    "short prompts, and all while no prefill worker is up, are prefilled by the decode worker") {
  Bench bench;
  bench.up_all();
  bench.submit(3);
  CHECK(bench.outbox.take<Open>(kD1).at(0).local);
  CHECK(bench.outbox.empty());
  bench.dispatcher.on_link_down(kP, "test");
  bench.submit(500);
  auto opens = bench.outbox.take<Open>(kD1);
  for (Open& open : bench.outbox.take<Open>(kD2)) opens.push_back(open);
  REQUIRE(opens.size() == 1);
  CHECK(opens[0].local);
}

TEST_CASE("max_tokens 1 needs no decode worker") {
  Bench bench;
  bench.up_all();
  bench.submit(8, 1);
  const auto prefill = bench.outbox.take<Prefill>(kP);
  REQUIRE(prefill.size() == 1);
  CHECK(prefill[0].candidates.empty());
  CHECK(bench.outbox.empty());
  bench.token(kP, prefill[0].id, 8, 50, 0, FinishReason::kLength);
  CHECK(bench.sink->finished.size() == 1);
  CHECK(bench.dispatcher.active() == 0);
}

TEST_CASE("the death of the decode worker replays from the accepted tokens") {
  Bench bench;
  bench.up_all();
  const AttemptId first = bench.start();
  bench.token(kD1, first, 8, 50);
  bench.token(kD1, first, 9, 51);
  bench.dispatcher.on_link_down(kD1, "test");

  CHECK(bench.outbox.take<Cancel>(kP).at(0).id == first);
  const Open open = bench.outbox.take<Open>(kD2).at(0);
  const Prefill prefill = bench.outbox.take<Prefill>(kP).at(0);
  CHECK(open.id.id == first.id);
  CHECK(open.id.attempt == first.attempt + 1);
  CHECK(prefill.prompt_len == 8);
  CHECK(prefill.tokens.size() == 10);
  CHECK(prefill.tokens.back() == 51);
  CHECK(prefill.spec.seed == 7);

  bench.token(kP, first, 10, 999);  // of the old attempt: stale
  bench.token(kP, open.id, 10, 52);
  bench.token(kD2, open.id, 10, 52);
  bench.token(kD2, open.id, 11, 53, 0, FinishReason::kStop);
  CHECK(bench.sink->tokens[0] == Tokens{50, 51, 52, 53});
  CHECK(bench.sink->failures.empty());
}

TEST_CASE("with n = 2 each unfinished choice is replayed as a request of its own") {
  Bench bench;
  bench.up_all();
  const AttemptId first = bench.start(2);
  bench.token(kD1, first, 9, 60, 0);
  bench.token(kD1, first, 9, 61, 1);
  bench.token(kD1, first, 10, 70, 1);
  bench.dispatcher.on_link_down(kD1, "test");

  const auto opens = bench.outbox.take<Open>(kD2);
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
  bench.token(kD2, opens[0].id, 10, 80, 0, FinishReason::kLength);
  CHECK(bench.dispatcher.active() == 1);
  bench.token(kD2, opens[1].id, 11, 81, 1, FinishReason::kLength);
  CHECK(bench.sink->tokens[0] == Tokens{50, 60, 80});
  CHECK(bench.sink->tokens[1] == Tokens{51, 61, 70, 81});
  CHECK(bench.dispatcher.active() == 0);
}

TEST_CASE("the death of P matters until the decode worker has spoken") {
  Bench bench;
  bench.up_all();
  const AttemptId id = bench.start();
  SUBCASE("before") {
    bench.dispatcher.on_link_down(kP, "test");
    const auto cancelled = bench.outbox.take<Cancel>(kD1);
    REQUIRE(cancelled.size() == 1);
    auto opens = bench.outbox.take<Open>(kD1);
    for (Open& open : bench.outbox.take<Open>(kD2)) opens.push_back(open);
    REQUIRE(opens.size() == 1);
    CHECK(opens[0].local);
    CHECK(opens[0].tokens.size() == 9);
  }
  SUBCASE("after") {
    bench.token(kD1, id, 8, 50);
    bench.dispatcher.on_link_down(kP, "test");
    CHECK(bench.outbox.empty());
    bench.token(kD1, id, 9, 51, 0, FinishReason::kStop);
    CHECK(bench.sink->tokens[0] == Tokens{50, 51});
  }
}

TEST_CASE("REFUSED is tried again after the time it names, as a new attempt") {
  Bench bench;
  bench.up_all();
  bench.submit(8);
  const AttemptId first = bench.outbox.take<Prefill>(kP).at(0).id;
  bench.dispatcher.on_message(kP, Refused{first, 50, "full"});
  CHECK(bench.outbox.take<Cancel>(kD1).size() == 1);
  bench.outbox.take<Open>(kD1);
  bench.wait_ms(40);
  CHECK(bench.outbox.take<Prefill>(kP).empty());
  bench.wait_ms(20);
  const auto second = bench.outbox.take<Prefill>(kP);
  REQUIRE(second.size() == 1);
  CHECK(second[0].id.attempt == first.attempt + 1);
  // The client hears of it only when the wait is over.
  bench.dispatcher.on_message(kP, Refused{second[0].id, 50, "full"});
  bench.wait_ms(bench.config.queue_wait_ms);
  REQUIRE(bench.sink->failures.size() == 1);
  CHECK(bench.sink->failures[0].code() == Code::kUnavailable);
  CHECK(bench.dispatcher.active() == 0);
}

TEST_CASE("cancel reaches everybody who knows of the request") {
  Bench bench;
  bench.up_all();
  const GenerationId generation = bench.submit(8);
  bench.dispatcher.cancel(generation);
  CHECK(bench.outbox.take<Cancel>(kP).size() == 1);
  CHECK(bench.outbox.take<Cancel>(kD1).size() == 1);
  CHECK(bench.outbox.take<Cancel>(kD2).size() == 1);
  CHECK(bench.dispatcher.active() == 0);
  CHECK(bench.dispatcher.waiting() == 0);
  CHECK(bench.placement.find(kP)->prefill_tokens == 0);
  CHECK(bench.placement.find(kD1)->choices == 0);
}

TEST_CASE("a stop string ends one choice at the workers, the others go on") {
  Bench bench;
  bench.up_all();
  bench.sink->stop_at[0] = 60;
  const AttemptId id = bench.start(2);
  bench.token(kD1, id, 9, 60, 0);
  const auto cancels = bench.outbox.take<Cancel>(kD1);
  REQUIRE(cancels.size() == 1);
  CHECK(cancels[0].choice == 0);
  bench.token(kD1, id, 10, 61, 0);  // was under way
  bench.token(kD1, id, 9, 70, 1, FinishReason::kStop);
  CHECK(bench.sink->tokens[0] == Tokens{50, 60});
  CHECK(bench.sink->tokens[1] == Tokens{51, 70});
  CHECK(bench.dispatcher.active() == 0);
}

TEST_CASE("with all workers gone a request waits for one to come back, then gives up") {
  Bench bench;
  bench.up(kD1, Role::kDecode, "d1");
  bench.submit(8);
  const AttemptId id = bench.outbox.take<Open>(kD1).at(0).id;
  bench.token(kD1, id, 8, 50);
  bench.dispatcher.on_link_down(kD1, "test");
  bench.wait_ms(1000);
  CHECK(bench.sink->failures.empty());
  SUBCASE("it comes back") {
    bench.up(7, Role::kDecode, "d1");
    const auto opens = bench.outbox.take<Open>(7);
    REQUIRE(opens.size() == 1);
    CHECK(opens[0].tokens.size() == 9);
  }
  SUBCASE("another model build comes up: tokens of the two do not mix") {
    bench.up(7, Role::kDecode, "d1", "other");
    CHECK(bench.outbox.take<Open>(7).empty());
  }
  SUBCASE("nobody comes") {
    bench.wait_ms(bench.config.queue_wait_ms);
    REQUIRE(bench.sink->failures.size() == 1);
    CHECK(bench.sink->failures[0].code() == Code::kUnavailable);
    CHECK(bench.sink->failures[0].message().find("no worker") != std::string::npos);
  }
}

TEST_CASE("recovery ends after so many losses") {
  Bench bench;
  bench.up_all();
  bench.submit(8);
  for (int i = 0; i <= bench.config.recovery_attempts_max; ++i) {
    const auto prefill = bench.outbox.take<Prefill>(kP);
    REQUIRE(prefill.size() == 1);
    CHECK(bench.sink->failures.empty());
    bench.dispatcher.on_message(kP, Failed{prefill[0].id, true, "broken"});
    if (i > 0)
      CHECK(bench.outbox.take<Prefill>(kP).empty());  // a pause: the worker may be coming back
    if (i > 0) bench.wait_ms(1000);
  }
  REQUIRE(bench.sink->failures.size() == 1);
  CHECK(bench.sink->failures[0].code() == Code::kUnavailable);
  CHECK(bench.sink->failures[0].message().find("broken") != std::string::npos);
}

TEST_CASE("a failure that cannot be retried is told at once") {
  Bench bench;
  bench.up_all();
  const AttemptId id = bench.start();
  bench.dispatcher.on_message(kD1, Failed{id, false, "NaN"});
  REQUIRE(bench.sink->failures.size() == 1);
  CHECK(bench.sink->failures[0].code() == Code::kInternal);
}

TEST_CASE("the queue is bounded") {
  RouteConfig route = test_route();
  route.queue_max = 2;
  Bench bench(route);
  CHECK(bench.dispatcher.admit(2).ok());
  bench.submit(8);
  CHECK(bench.dispatcher.admit(1).ok());
  bench.submit(8);
  CHECK(bench.dispatcher.admit(1).code() == Code::kResourceExhausted);
  bench.up_all();  // both are placed, but have no token so far
  CHECK(bench.dispatcher.admit(1).code() == Code::kResourceExhausted);
  bench.token(kP, bench.outbox.take<Prefill>(kP).at(0).id, 8, 50);
  CHECK(bench.dispatcher.admit(1).ok());
}

TEST_CASE("a request has so much time in all") {
  Bench bench;
  bench.up_all();
  const AttemptId id = bench.start();
  bench.wait_ms(bench.config.request_timeout_ms);
  REQUIRE(bench.sink->failures.size() == 1);
  CHECK(bench.sink->failures[0].code() == Code::kDeadlineExceeded);
  CHECK(bench.outbox.take<Cancel>(kD1).at(0).id == id);
}

TEST_CASE("a replay tells prompt logprobs and cached tokens once") {
  Bench bench;
  bench.up_all();
  bench.submit(8);
  const AttemptId first = bench.outbox.take<Prefill>(kP).at(0).id;
  bench.dispatcher.on_message(kP, Usage{first, 4});
  bench.dispatcher.on_message(kP, PromptLogprobs{first, 0, {{100, 0}, {101, -1}}, {}});
  bench.dispatcher.on_link_down(kD1, "test");
  bench.dispatcher.on_link_down(kD2, "test");
  bench.up(kD2 + 1, Role::kDecode, "d3");
  const AttemptId second = bench.outbox.take<Prefill>(kP).at(0).id;
  bench.dispatcher.on_message(kP, Usage{second, 8});
  bench.dispatcher.on_message(kP, PromptLogprobs{second, 0, {{100, 0}, {101, -1}, {102, -2}}, {}});
  CHECK(bench.sink->cached == std::vector<int32_t>{4});
  CHECK(bench.sink->scored == Tokens{100, 101, 102});
}

}  // namespace
}  // namespace baton
