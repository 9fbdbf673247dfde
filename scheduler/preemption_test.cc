// Growth in a full pool: who gives way, who comes back, and that nothing is lost or said twice.
#include <map>

#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Tokens = std::map<std::pair<uint64_t, int32_t>, std::vector<TokenId>>;  // by request, choice

Tokens by_choice(const std::vector<TokenEvent>& events) {
  Tokens tokens;
  for (const TokenEvent& event : events) {
    tokens[{event.id.id.sequence, event.choice}].push_back(event.token);
  }
  return tokens;
}

TEST_CASE("the youngest gives way, resumes before anybody new, and its tokens stay the same") {
  const SequenceSpec older = test_sequence(test_tokens(30, 1), 50);
  const SequenceSpec younger = test_sequence(test_tokens(30, 2), 50);
  TestWorker roomy({test_group()}, {64});
  REQUIRE(roomy.scheduler.add_prompt(older, std::nullopt).ok());
  REQUIRE(roomy.scheduler.add_prompt(younger, std::nullopt).ok());
  const Tokens expected = by_choice(roomy.drain());

  TestWorker tight({test_group()}, {6});
  const SeqId first = *tight.scheduler.add_prompt(older, std::nullopt);
  const SeqId second = *tight.scheduler.add_prompt(younger, std::nullopt);
  std::vector<TokenEvent> events;
  while (std::string(tight.scheduler.stage(second)) != "preempted") {
    const std::optional<StepResult> result = tight.step();
    REQUIRE(result);
    events.insert(events.end(), result->events.begin(), result->events.end());
  }
  CHECK(std::string(tight.scheduler.stage(first)) == "decoding");
  CHECK(tight.scheduler.preempted_waiting());
  const SeqId third =
      *tight.scheduler.add_prompt(test_sequence(test_tokens(5, 3), 1), std::nullopt);
  while (std::optional<StepResult> result = tight.step()) {
    events.insert(events.end(), result->events.begin(), result->events.end());
    tight.ended.insert(tight.ended.end(), result->ended.begin(), result->ended.end());
    const bool waits = std::string(tight.scheduler.stage(second)) == "preempted";
    if (waits) CHECK(std::string(tight.scheduler.stage(third)) == "queued");
  }
  Tokens got = by_choice(events);
  got.erase({3000, 0});
  CHECK(got == expected);
  CHECK(tight.ended.front() == first);
  CHECK(std::find(tight.ended.begin(), tight.ended.end(), third) != tight.ended.end());
  CHECK_FALSE(tight.scheduler.preempted_waiting());
}

TEST_CASE("a lower priority gives way before a younger one") {
  TestWorker w({test_group()}, {6});
  SequenceSpec low = test_sequence(test_tokens(30, 1), 50);
  low.spec.priority = 1;
  const SeqId background = *w.scheduler.add_prompt(low, std::nullopt);
  REQUIRE(w.step());
  const SeqId urgent = *w.scheduler.add_prompt(test_sequence(test_tokens(30, 2), 50), std::nullopt);
  while (std::string(w.scheduler.stage(background)) != "preempted") REQUIRE(w.step());
  CHECK(std::string(w.scheduler.stage(urgent)) == "decoding");
  w.drain();
  CHECK(w.ended == std::vector<SeqId>{urgent, background});
}

TEST_CASE("choices that do not fit together run one after the other") {
  const SequenceSpec sequence = test_sequence(test_tokens(30, 1), 35, 3);
  TestWorker roomy({test_group()}, {64});
  REQUIRE(roomy.scheduler.add_prompt(sequence, std::nullopt).ok());
  const Tokens expected = by_choice(roomy.drain());
  TestWorker tight({test_group()}, {4});  // 64 tokens: one choice
  REQUIRE(tight.scheduler.add_prompt(sequence, std::nullopt).ok());
  CHECK(by_choice(tight.drain()) == expected);
  CHECK(expected.size() == 3);
  CHECK(tight.ended.size() == 1);
}

TEST_CASE("a shared tail page that has become a prefix entry is not written to") {
  TestWorker w({test_group()}, {4});
  const SequenceSpec sequence = test_sequence(test_tokens(40, 1), 20, 2);
  const SeqId seq = *w.scheduler.add_prompt(sequence, std::nullopt);
  std::vector<PageRef> granted = w.ledger.take(0, 1, PageState::kGranted);
  std::vector<TokenId> first = sequence.tokens;
  std::vector<TokenId> second;
  while (first.size() < 49) {  // the first choice fills the page; the second has none to copy to
    const std::optional<StepResult> result = w.step();
    REQUIRE(result);
    for (const TokenEvent& event : result->events) {
      (event.choice == 0 ? first : second).push_back(event.token);
    }
  }
  CHECK(second.size() == 1);
  CHECK(w.cache.match_length(first, 48, "") == 48);
  w.scheduler.cancel(seq, 0);
  // Alone now, it computes the page again rather than wait for a second one.
  for (const TokenEvent& event : w.drain()) second.push_back(event.token);
  CHECK(second.size() == 9);
  granted.clear();
  CHECK(w.drain().size() == 11);
  REQUIRE(w.scheduler.add_prompt(test_sequence(first, 2), std::nullopt).ok());
  CHECK(w.drain().size() == 2);
}

TEST_CASE("a preempted choice's pages stay until the steps in flight have ended") {
  TestWorker w({test_group()}, {6});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(30, 1), 50), std::nullopt).ok());
  const SeqId second = *w.scheduler.add_prompt(test_sequence(test_tokens(30, 2), 50), std::nullopt);
  std::optional<PreparedStep> current = w.scheduler.next_step();
  REQUIRE(current);
  while (true) {
    std::optional<PreparedStep> ahead = w.scheduler.next_step();
    if (std::string(w.scheduler.stage(second)) == "preempted") {
      // `current` writes to the pages of both; the older one waits for its end.
      CHECK_FALSE(ahead);
      CHECK(w.ledger.available(0) == 0);
      break;
    }
    REQUIRE(ahead);
    w.scheduler.complete(w.engine.execute(current->input));
    current = std::move(ahead);
  }
  const StepResult result = w.scheduler.complete(w.engine.execute(current->input));
  CHECK(result.events.size() == 2);  // also the preempted one's
  CHECK(w.ledger.available(0) > 0);
  w.drain();
  CHECK(w.ended.size() == 2);
}

TEST_CASE("alone and short of pages that others were granted, it waits for them") {
  TestWorker w({test_group()}, {4});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(30, 1), 30), std::nullopt).ok());
  REQUIRE(w.step());
  std::vector<PageRef> granted = w.ledger.take(0, 2, PageState::kGranted);
  REQUIRE(granted.size() == 2);
  w.drain();
  CHECK(w.ended.empty());
  CHECK(w.scheduler.preempted_waiting());  // no more grants now
  granted.clear();
  w.drain();
  CHECK(w.ended.size() == 1);
}

}  // namespace
}  // namespace baton
