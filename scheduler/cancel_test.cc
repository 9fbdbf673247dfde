// A cancel at every stage that the scheduler knows: the pages are home as soon as no step in flight
// may touch them, the slots are closed, and those that stay are not disturbed. What
// prefill/ and decode/ add (reserving, granted, transferring) is tested in worker/cancel_test.cc.
#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

int64_t pages_held(const TestWorker& w) {
  const PageCounts counts = w.ledger.counts(0);
  return counts.total - counts.free - counts.cached;
}

bool nothing_left(const TestWorker& w) {
  return pages_held(w) == 0 && w.scheduler.running() == 0 && w.scheduler.waiting() == 0 &&
         w.scheduler.queued_tokens() == 0 && !w.scheduler.preempted_waiting();
}

TEST_CASE("cancelled while queued: it never gets a page") {
  TestWorker w({test_group()}, {4});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(40, 1), 10), std::nullopt).ok());
  REQUIRE(w.step());
  const SeqId queued = *w.scheduler.add_prompt(test_sequence(test_tokens(40, 2), 5), std::nullopt);
  w.step();
  REQUIRE(std::string(w.scheduler.stage(queued)) == "queued");
  w.scheduler.cancel(queued);
  CHECK(std::string(w.scheduler.stage(queued)).empty());
  CHECK(w.scheduler.waiting() == 0);
  for (const TokenEvent& event : w.drain()) CHECK(event.id.id.sequence == 1000);
  CHECK(nothing_left(w));
}

TEST_CASE("cancelled in its prompt: no further chunk, and the pages go with the last one") {
  TestWorker w({test_group()}, {64});
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(500, 1), 5), std::nullopt);
  REQUIRE(w.step());
  const std::optional<PreparedStep> running = w.scheduler.next_step();
  REQUIRE(running);
  w.scheduler.cancel(seq);
  CHECK_FALSE(w.scheduler.next_step());
  CHECK(pages_held(w) > 0);
  const StepResult result = w.scheduler.complete(w.engine.execute(running->input));
  CHECK(result.events.empty());
  CHECK(result.prompts_done.empty());
  CHECK(nothing_left(w));
}

TEST_CASE("cancelled while it decodes, with its next token under way") {
  TestWorker w({test_group()}, {64});
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(30, 1), 50), std::nullopt);
  REQUIRE(w.step());
  REQUIRE(w.step());
  REQUIRE(std::string(w.scheduler.stage(seq)) == "decoding");
  const std::optional<PreparedStep> running = w.scheduler.next_step();
  REQUIRE(running);
  w.scheduler.cancel(seq);
  const StepResult result = w.scheduler.complete(w.engine.execute(running->input));
  CHECK(result.events.empty());
  CHECK(nothing_left(w));
  // The engine is told of the closed slot with whatever comes next.
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(5, 2), 1), std::nullopt).ok());
  const std::optional<PreparedStep> next = w.scheduler.next_step();
  REQUIRE(next);
  CHECK(next->input.closed_slots == std::vector<int32_t>{0});
  w.scheduler.complete(w.engine.execute(next->input));
}

TEST_CASE("one choice of several is cancelled; the last one takes the request with it") {
  TestWorker w({test_group()}, {64});
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(30, 1), 50, 3), std::nullopt);
  REQUIRE(w.step());
  w.scheduler.cancel(seq, 1);
  const std::optional<StepResult> result = w.step();
  REQUIRE(result);
  for (const TokenEvent& event : result->events) CHECK(event.choice != 1);
  CHECK(result->events.size() == 2);
  w.scheduler.cancel(seq, 0);
  w.scheduler.cancel(seq, 2);
  CHECK(w.scheduler.take_ended() == std::vector<SeqId>{seq});
  CHECK_FALSE(w.step());
  CHECK(nothing_left(w));
}

TEST_CASE("cancelled while preempted: the others need not wait for it") {
  TestWorker w({test_group()}, {6});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(30, 1), 50), std::nullopt).ok());
  const SeqId younger =
      *w.scheduler.add_prompt(test_sequence(test_tokens(30, 2), 50), std::nullopt);
  while (std::string(w.scheduler.stage(younger)) != "preempted") REQUIRE(w.step());
  const SeqId behind = *w.scheduler.add_prompt(test_sequence(test_tokens(5, 3), 1), std::nullopt);
  w.step();
  REQUIRE(std::string(w.scheduler.stage(behind)) == "queued");
  w.scheduler.cancel(younger);
  CHECK_FALSE(w.scheduler.preempted_waiting());
  w.drain();
  CHECK(w.ended.size() == 2);
  CHECK(nothing_left(w));
}

TEST_CASE("preempted with a step of it in flight, then cancelled: pages wait for that step only") {
  TestWorker w({test_group()}, {6});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(30, 1), 50), std::nullopt).ok());
  const SeqId younger =
      *w.scheduler.add_prompt(test_sequence(test_tokens(30, 2), 50), std::nullopt);
  std::optional<PreparedStep> current = w.scheduler.next_step();
  while (std::string(w.scheduler.stage(younger)) != "preempted") {
    std::optional<PreparedStep> ahead = w.scheduler.next_step();
    w.scheduler.complete(w.engine.execute(current->input));
    current = ahead ? std::move(ahead) : w.scheduler.next_step();
    REQUIRE(current);
  }
  w.scheduler.cancel(younger);
  const StepResult result = w.scheduler.complete(w.engine.execute(current->input));
  for (const TokenEvent& event : result.events) CHECK(event.id.id.sequence == 1000);
  w.drain();
  CHECK(nothing_left(w));
}

TEST_CASE("a pushed prompt's pages go to whoever waits for its copies, not to the pool") {
  TestWorker w({test_group()}, {64});
  PushTarget target;
  target.transfer = 7;
  target.groups = {{.first_token = 0, .page_ids = test_tokens(32)}};
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(500, 1), 5), target);
  REQUIRE(w.step());
  GroupPages pages = w.scheduler.cancel(seq);
  REQUIRE(pages.size() == 1);
  CHECK(pages[0].size() == 32);
  CHECK_FALSE(w.step());
  CHECK(pages_held(w) == 32);
  pages.clear();
  CHECK(nothing_left(w));
}

}  // namespace
}  // namespace baton
