// Who gets in, when, and with which pages.
#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("impossible requests are refused at the door") {
  TestWorker w({test_group()}, {4}, test_config(), 200);
  const auto code = [&](SequenceSpec sequence) {
    return w.scheduler.add_prompt(std::move(sequence), std::nullopt).status().code();
  };
  CHECK(code(test_sequence({}, 4)) == Code::kInvalidArgument);
  CHECK(code(test_sequence(test_tokens(40), 26)) == Code::kInvalidArgument);    // 65 KV entries
  CHECK(code(test_sequence(test_tokens(40), 4, 9)) == Code::kInvalidArgument);  // running_max 8
  SequenceSpec replay = test_sequence(test_tokens(40), 4);
  replay.prompt_len = 36;  // all four are known
  CHECK(code(replay) == Code::kInvalidArgument);
  CHECK(code(test_sequence(test_tokens(40), 25)) == Code::kOk);
  CHECK(w.drain().size() == 25);
}

TEST_CASE("the queue is bounded") {
  SchedulerConfig config = test_config();
  config.waiting_max = 2;
  TestWorker w({test_group()}, {64}, config);
  for (TokenId i = 0; i < 2; ++i) {
    REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(8, i), 1), std::nullopt).ok());
  }
  const Result<SeqId> third =
      w.scheduler.add_prompt(test_sequence(test_tokens(8, 2), 1), std::nullopt);
  CHECK(third.status().code() == Code::kResourceExhausted);
  CHECK(w.scheduler.waiting() == 2);
  CHECK(w.scheduler.queued_tokens() == 16);
  w.clock.advance_us(500);
  CHECK(w.scheduler.oldest_wait_us() == 500);
  w.drain();
  CHECK(w.scheduler.oldest_wait_us() == 0);
}

TEST_CASE("a large request at the head is not overtaken") {
  TestWorker w({test_group()}, {6});
  const SeqId running =
      *w.scheduler.add_prompt(test_sequence(test_tokens(40, 1), 20), std::nullopt);
  REQUIRE(w.step());
  const SeqId large = *w.scheduler.add_prompt(test_sequence(test_tokens(80, 2), 2), std::nullopt);
  const SeqId small = *w.scheduler.add_prompt(test_sequence(test_tokens(5, 3), 2), std::nullopt);
  REQUIRE(w.step());
  CHECK(std::string(w.scheduler.stage(large)) == "queued");
  CHECK(std::string(w.scheduler.stage(small)) == "queued");
  CHECK(w.scheduler.head_pages_wanted(0) == 5);
  CHECK(w.ledger.counts(0).used == 3);  // those that wait hold nothing
  w.drain();
  CHECK(w.ended == std::vector<SeqId>{running, large, small});
}

TEST_CASE("priority first, then age") {
  SchedulerConfig config = test_config();
  config.step_tokens = config.chunk_tokens = 16;
  TestWorker w({test_group()}, {64}, config);
  const SeqId first = *w.scheduler.add_prompt(test_sequence(test_tokens(16, 1), 1), std::nullopt);
  const SeqId second = *w.scheduler.add_prompt(test_sequence(test_tokens(16, 2), 1), std::nullopt);
  SequenceSpec urgent = test_sequence(test_tokens(16, 3), 1);
  urgent.spec.priority = -1;
  const SeqId third = *w.scheduler.add_prompt(urgent, std::nullopt);
  w.drain();
  CHECK(w.ended == std::vector<SeqId>{third, first, second});
}

TEST_CASE("a flood from one router does not starve another") {
  SchedulerConfig config = test_config();
  config.step_tokens = config.chunk_tokens = 16;
  TestWorker w({test_group()}, {64}, config);
  std::vector<SeqId> loud;
  for (TokenId i = 1; i <= 12; ++i) {
    loud.push_back(*w.scheduler.add_prompt(test_sequence(test_tokens(16, i), 1), std::nullopt));
  }
  w.step();
  SequenceSpec other = test_sequence(test_tokens(16, 20), 1);
  other.id.id.router_epoch = 2;
  const SeqId quiet = *w.scheduler.add_prompt(other, std::nullopt);
  w.drain();
  REQUIRE(w.ended.size() >= 3);
  CHECK(std::find(w.ended.begin(), w.ended.begin() + 3, quiet) != w.ended.begin() + 3);
  CHECK(w.ended.back() == loud.back());
}

TEST_CASE("a low priority waits for priority_tokens of later prompts, not for ever") {
  SchedulerConfig config = test_config();
  config.step_tokens = config.chunk_tokens = 16;
  config.priority_tokens = 64;
  TestWorker w({test_group()}, {64}, config);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(16, 1), 1), std::nullopt).ok());
  SequenceSpec background = test_sequence(test_tokens(16, 2), 1);
  background.spec.priority = 1;
  const SeqId low = *w.scheduler.add_prompt(background, std::nullopt);
  for (TokenId i = 3; w.ended.size() < 20; ++i) {  // there is always one more that is urgent
    REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(16, i), 1), std::nullopt).ok());
    const std::optional<StepResult> result = w.step();
    REQUIRE(result);
    for (SeqId seq : result->ended) w.ended.push_back(seq);
  }
  const auto place = std::find(w.ended.begin(), w.ended.end(), low) - w.ended.begin();
  CHECK(place > 2);
  CHECK(place < 8);
}

TEST_CASE("running_max bounds the choices that decode") {
  SchedulerConfig config = test_config();
  config.running_max = 3;
  TestWorker w({test_group()}, {64}, config);
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(5, 1), 10, 2), std::nullopt).ok());
  const SeqId next = *w.scheduler.add_prompt(test_sequence(test_tokens(5, 2), 3, 2), std::nullopt);
  w.step();
  w.step();
  CHECK(w.scheduler.running() == 2);
  CHECK(w.scheduler.growth_pages_wanted(0) == 2);
  CHECK(std::string(w.scheduler.stage(next)) == "queued");
  CHECK(w.drain().size() == 2 * 10 + 2 * 3 - 2 * 2);
}

TEST_CASE("a second turn finds the first, answer included, under the same salt only") {
  TestWorker w({test_group()}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(40, 1), 30), std::nullopt).ok());
  std::vector<TokenId> turn = test_tokens(40, 1);
  for (const TokenEvent& event : w.drain()) turn.push_back(event.token);
  for (TokenId token : test_tokens(20, 2)) turn.push_back(token);  // 69 of 90 have KV: 64 are whole
  SequenceSpec salted = test_sequence(turn, 2);
  salted.spec.cache_salt = "other";
  REQUIRE(w.scheduler.add_prompt(test_sequence(turn, 2), std::nullopt).ok());
  REQUIRE(w.scheduler.add_prompt(salted, std::nullopt).ok());
  const std::optional<PreparedStep> prepared = w.scheduler.next_step();
  REQUIRE(prepared);
  REQUIRE(prepared->started.size() == 2);
  CHECK(prepared->started[0].cached_tokens == 64);
  CHECK(prepared->started[1].cached_tokens == 0);
  CHECK(prepared->input.chunks[0].first_pos == 64);
  const StepResult result = w.scheduler.complete(w.engine.execute(prepared->input));
  REQUIRE(result.prompts_done.size() == 1);
  CHECK(result.prompts_done[0].cached_tokens == 64);
  w.drain();
}

TEST_CASE("scoring computes everything, cached or not, and nothing is sampled for max_tokens 0") {
  TestWorker w({test_group()}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(70, 1), 1), std::nullopt).ok());
  w.drain();
  SequenceSpec scored = test_sequence(test_tokens(70, 1), 0);
  scored.spec.prompt_logprobs = 1;
  const SeqId seq = *w.scheduler.add_prompt(scored, std::nullopt);
  std::vector<PromptLogprobs> logprobs;
  std::vector<SeqId> ended;
  while (std::optional<StepResult> result = w.step()) {
    CHECK(result->events.empty());
    for (PromptLogprobs& part : result->prompt_logprobs) logprobs.push_back(std::move(part));
    for (SeqId e : result->ended) ended.push_back(e);
  }
  CHECK(ended == std::vector<SeqId>{seq});
  REQUIRE(logprobs.size() == 1);
  CHECK(logprobs[0].first_position == 1);
  REQUIRE(logprobs[0].tokens.size() == 69);
  for (int32_t i = 0; i < 69; ++i) {
    CHECK(logprobs[0].tokens[static_cast<size_t>(i)].token == 1000 + i + 1);
    CHECK(logprobs[0].tokens[static_cast<size_t>(i)].logprob == static_cast<float>(i + 1));
  }
}

}  // namespace
}  // namespace baton
