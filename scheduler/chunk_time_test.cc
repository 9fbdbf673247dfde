// Prefill chunks bounded in time (prefill.chunk_ms): how long they are, and what a cancel waits
// for.
#include <deque>

#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int64_t kUsPerToken = 1000;

SchedulerConfig timed_config(int64_t chunk_ms = 100) {
  SchedulerConfig config = test_config();
  config.step_tokens = config.chunk_tokens = 512;
  config.chunk_ms = chunk_ms;
  return config;
}

// Runs one step; the clock goes on by as much as it took. Its tokens.
int32_t timed_step(TestWorker& w) {
  const std::optional<PreparedStep> prepared = w.scheduler.next_step();
  if (!prepared) return 0;
  const StepOutput output = w.engine.execute(prepared->input);
  w.clock.advance_us(output.compute_us);
  const StepResult result = w.scheduler.complete(output);
  for (SeqId seq : result.ended) w.ended.push_back(seq);
  return prepared->input.num_tokens();
}

TEST_CASE("a chunk is short until something has been measured, then as long as its time allows") {
  TestWorker w({test_group()}, {512}, timed_config(), 8192);
  w.engine.set_us_per_token(kUsPerToken);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(8000), 1), std::nullopt).ok());
  CHECK(timed_step(w) == 32);
  CHECK(timed_step(w) == 96);  // 100 ms, in whole sixteens
  w.engine.set_us_per_token(kUsPerToken / 4);
  for (int i = 0; i < 8; ++i) timed_step(w);
  CHECK(timed_step(w) > 150);
  w.drain();
}

TEST_CASE("0 bounds chunks in tokens only") {
  TestWorker w({test_group()}, {256}, timed_config(0));
  w.engine.set_us_per_token(kUsPerToken);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(2000), 1), std::nullopt).ok());
  CHECK(timed_step(w) == 512);
  w.drain();
}

TEST_CASE("prompts share a step's time") {
  TestWorker w({test_group()}, {512}, timed_config());
  w.engine.set_us_per_token(kUsPerToken);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(50, 1), 1), std::nullopt).ok());
  timed_step(w);
  timed_step(w);
  for (TokenId i = 2; i < 8; ++i) {
    REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(40, i), 1), std::nullopt).ok());
  }
  const int64_t before_us = w.clock.now_us();
  timed_step(w);
  CHECK(w.clock.now_us() - before_us <= 100'000);
  w.drain();
}

TEST_CASE("however slow, a prompt gets on") {
  TestWorker w({test_group()}, {256}, timed_config(1));
  w.engine.set_us_per_token(1'000'000);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(100), 3), std::nullopt).ok());
  CHECK(w.drain().size() == 3);
}

// dynamo#14507: a client that leaves before the first token does not stop the prefill, and the
// next request waits for all of it.
TEST_CASE("a cancelled long prompt gives way within the steps that were given out") {
  TestWorker w({test_group()}, {8192}, timed_config(), 131'072);
  w.engine.set_us_per_token(kUsPerToken);
  const SeqId large =
      *w.scheduler.add_prompt(test_sequence(test_tokens(120'000), 10), std::nullopt);
  while (w.clock.now_us() < 2'000'000) timed_step(w);
  REQUIRE(std::string(w.scheduler.stage(large)) == "prefilling");

  // As in the worker: one step is being computed and one is prepared when the cancel comes.
  std::deque<PreparedStep> in_flight;
  while (std::optional<PreparedStep> step = w.scheduler.next_step()) {
    in_flight.push_back(std::move(*step));
  }
  REQUIRE(in_flight.size() == 2);
  w.scheduler.cancel(large);
  const SeqId small = *w.scheduler.add_prompt(test_sequence(test_tokens(20, 9), 1), std::nullopt);
  const int64_t cancelled_us = w.clock.now_us();
  for (const PreparedStep& step : in_flight) {
    const StepOutput output = w.engine.execute(step.input);
    w.clock.advance_us(output.compute_us);
    w.scheduler.complete(output);
  }
  CHECK(w.ledger.counts(0).used == 0);
  CHECK(w.clock.now_us() - cancelled_us <= 2 * 100'000);
  while (w.ended.empty()) REQUIRE(timed_step(w) > 0);
  CHECK(w.ended == std::vector<SeqId>{small});
  CHECK(w.clock.now_us() - cancelled_us <= 3 * 100'000);
}

}  // namespace
}  // namespace baton
