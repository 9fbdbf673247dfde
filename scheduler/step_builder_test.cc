// What is in a step: chunks under the budget, one step ahead, slots, copies, windows.
#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("prompts are cut into chunks, several in a step, within the budget") {
  TestWorker w({test_group()}, {64});  // 64 tokens a step, 32 a chunk
  for (TokenId i = 1; i <= 3; ++i) {
    REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(50, i), 1), std::nullopt).ok());
  }
  const std::optional<PreparedStep> first = w.scheduler.next_step();
  REQUIRE(first);
  REQUIRE(first->input.chunks.size() == 2);
  CHECK(first->input.num_tokens() == 64);
  CHECK(first->input.opened_slots.empty());
  CHECK(w.scheduler.waiting() == 1);  // no budget, no pages
  const std::optional<PreparedStep> second = w.scheduler.next_step();
  REQUIRE(second);
  REQUIRE(second->input.chunks.size() == 3);
  CHECK(second->input.chunks[0].tokens.size() == 18);
  CHECK(second->input.chunks[0].sample_slots == std::vector<int32_t>{0});
  CHECK(second->input.chunks[2].tokens.size() == 28);
  CHECK(second->input.chunks[2].sample_slots.empty());
  CHECK_FALSE(w.scheduler.next_step());  // steps_ahead 1: two are in flight
  w.scheduler.complete(w.engine.execute(first->input));
  w.scheduler.complete(w.engine.execute(second->input));
  w.drain();
}

TEST_CASE("decodes go first and one step ahead of their tokens") {
  TestWorker w({test_group()}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(20, 1), 3), std::nullopt).ok());
  const std::optional<PreparedStep> prompt = w.scheduler.next_step();
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(20, 2), 1), std::nullopt).ok());
  const std::optional<PreparedStep> ahead = w.scheduler.next_step();
  REQUIRE(prompt);
  REQUIRE(ahead);
  REQUIRE(ahead->input.chunks.size() == 2);
  CHECK(ahead->input.chunks[0].use_last);
  CHECK(ahead->input.chunks[0].first_pos == 20);
  CHECK(ahead->input.chunks[1].tokens.size() == 20);
  const StepResult result = w.scheduler.complete(w.engine.execute(prompt->input));
  REQUIRE(result.events.size() == 1);
  CHECK(result.events[0].position == 20);
  // Its last token's step; then steps in flight exhaust max_tokens.
  const std::optional<PreparedStep> last = w.scheduler.next_step();
  REQUIRE(last);
  w.scheduler.complete(w.engine.execute(ahead->input));
  CHECK_FALSE(w.scheduler.next_step());
  const StepResult end = w.scheduler.complete(w.engine.execute(last->input));
  CHECK(end.events[0].finish == FinishReason::kLength);
  CHECK(end.ended.size() == 1);
}

TEST_CASE("prompts that share a step with decodes keep to mixed_tokens") {
  SchedulerConfig config = test_config();
  config.mixed_tokens = 24;
  TestWorker w({test_group()}, {64}, config);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(20, 1), 50), std::nullopt).ok());
  const std::optional<PreparedStep> prompt = w.scheduler.next_step();
  REQUIRE(prompt);
  w.scheduler.complete(w.engine.execute(prompt->input));
  for (TokenId i = 2; i <= 4; ++i) {
    REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(50, i), 1), std::nullopt).ok());
  }
  const std::optional<PreparedStep> mixed = w.scheduler.next_step();
  REQUIRE(mixed);
  REQUIRE(mixed->input.chunks.size() == 2);
  CHECK(mixed->input.chunks[0].tokens.size() == 1);
  CHECK(mixed->input.chunks[1].tokens.size() == 24);
  w.scheduler.complete(w.engine.execute(mixed->input));
  w.drain();
}

TEST_CASE("a choice that ends while its next step is in flight is skipped there") {
  TestWorker w({test_group()}, {64});
  SequenceSpec sequence = test_sequence(test_tokens(10, 1), 1000);
  sequence.spec.ignore_eos = false;
  REQUIRE(w.scheduler.add_prompt(sequence, std::nullopt).ok());
  std::optional<PreparedStep> current = w.scheduler.next_step();
  while (true) {
    std::optional<PreparedStep> ahead = w.scheduler.next_step();
    REQUIRE(ahead);
    const StepResult result = w.scheduler.complete(w.engine.execute(current->input));
    current = std::move(ahead);
    if (!result.ended.empty()) break;
  }
  CHECK(w.ledger.counts(0).used > 0);  // the step in flight may still write to its pages
  const StepOutput skipped = w.engine.execute(current->input);
  CHECK(skipped.sampled.empty());
  const StepResult result = w.scheduler.complete(skipped);
  CHECK(result.events.empty());
  CHECK(result.ended.empty());
  CHECK(w.ledger.counts(0).used == 0);
}

TEST_CASE("choices share the prompt's full pages and copy the partial one") {
  TestWorker w({test_group()}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(40, 1), 4, 3), std::nullopt).ok());
  REQUIRE(w.step());  // 32 tokens
  const std::optional<PreparedStep> prompt = w.scheduler.next_step();
  REQUIRE(prompt);
  CHECK(prompt->input.chunks[0].sample_slots == std::vector<int32_t>{0, 1, 2});
  w.scheduler.complete(w.engine.execute(prompt->input));
  CHECK(w.ledger.counts(0).used == 3);
  const std::optional<PreparedStep> decode = w.scheduler.next_step();
  REQUIRE(decode);
  CHECK(decode->input.page_copies.size() == 2);  // the first keeps the original
  REQUIRE(decode->input.chunks.size() == 3);
  for (const Chunk& chunk : decode->input.chunks) {
    CHECK(chunk.block_tables[0][0] == decode->input.chunks[0].block_tables[0][0]);
  }
  w.scheduler.complete(w.engine.execute(decode->input));
  CHECK(w.ledger.counts(0).used == 5);
  CHECK(w.drain().size() == 6);
  CHECK(w.ledger.counts(0).used == 0);
}

TEST_CASE("slot numbers are closed in the next step and used again") {
  TestWorker w({test_group()}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(10, 1), 1), std::nullopt).ok());
  REQUIRE(w.step());
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(10, 2), 1), std::nullopt).ok());
  const std::optional<PreparedStep> next = w.scheduler.next_step();
  REQUIRE(next);
  CHECK(next->input.closed_slots == std::vector<int32_t>{0});
  REQUIRE(next->input.opened_slots.size() == 1);
  CHECK(next->input.opened_slots[0].slot == 0);
  CHECK(next->input.opened_slots[0].tokens == test_tokens(10, 2));
  w.scheduler.complete(w.engine.execute(next->input));
}

TEST_CASE("pages that have left the window go back, also while the prompt is computed") {
  TestWorker w({test_group(), test_group(16, 20)}, {64, 64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(128, 1), 40), std::nullopt).ok());
  REQUIRE(w.step());
  REQUIRE(w.step());
  REQUIRE(w.step());  // 96 tokens: the next sees 77..
  CHECK(w.ledger.counts(0).used == 8);
  CHECK(w.ledger.counts(1).used == 4);
  REQUIRE(w.step());
  const std::optional<PreparedStep> decode = w.scheduler.next_step();
  REQUIRE(decode);
  const std::vector<int32_t>& table = decode->input.chunks[0].block_tables[1];
  REQUIRE(table.size() == 9);
  CHECK(table[5] == -1);
  CHECK(table[6] >= 0);
  w.scheduler.complete(w.engine.execute(decode->input));
  w.drain();
}

TEST_CASE("a replay goes on where it was, with the absolute number of its choice") {
  TestWorker w({test_group()}, {64});
  SequenceSpec whole = test_sequence(test_tokens(20, 1), 12);
  whole.spec.first_choice = 3;
  REQUIRE(w.scheduler.add_prompt(whole, std::nullopt).ok());
  const std::vector<TokenEvent> all = w.drain();
  REQUIRE(all.size() == 12);
  SequenceSpec replay = whole;
  for (size_t i = 0; i < 5; ++i) replay.tokens.push_back(all[i].token);
  REQUIRE(w.scheduler.add_prompt(replay, std::nullopt).ok());
  const std::vector<TokenEvent> rest = w.drain();
  CHECK(rest == std::vector<TokenEvent>(all.begin() + 5, all.end()));
  CHECK(rest[0].choice == 3);
}

}  // namespace
}  // namespace baton
