// Pushed prompts, landed ones, and cancels of both.
#include <utility>

#include "scheduler/page_table.h"
#include "scheduler/test_fixture.h"

#include "tests/doctest.h"

namespace baton {
namespace {

PushTarget target_of(int32_t pages, int32_t first_token = 0) {
  PushTarget target{77, first_token, {{first_token, {}}}};
  for (int32_t i = 0; i < pages; ++i) target.groups[0].page_ids.push_back(100 + i);
  return target;
}

TEST_CASE("a pushed prompt pushes each page once and leaves with its pages") {
  TestWorker w({test_group()}, {64});
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(70, 1), 9, 2), target_of(5));
  std::vector<int32_t> pushed;
  std::optional<StepResult> last;
  int32_t started = 0;
  while (std::optional<PreparedStep> prepared = w.scheduler.next_step()) {
    started += static_cast<int32_t>(prepared->started.size());
    for (const PushPage& push : prepared->input.pushes) pushed.push_back(push.dst_page);
    last = w.scheduler.complete(w.engine.execute(prepared->input));
  }
  CHECK(started == 1);
  CHECK(pushed == std::vector<int32_t>{100, 101, 102, 103, 104});
  REQUIRE(last);
  REQUIRE(last->prompts_done.size() == 1);
  PromptDone& done = last->prompts_done[0];
  CHECK(done.seq == seq);
  CHECK(done.pushed);
  CHECK(done.first_tokens.size() == 2);
  CHECK(done.pages[0].size() == 5);
  CHECK(last->ended.empty());
  CHECK(std::string(w.scheduler.stage(seq)).empty());
  CHECK(w.ledger.counts(0).used == 5);
  done.pages.clear();
  CHECK(w.ledger.counts(0).cached == 4);  // whole ones stay in the prefix cache
}

TEST_CASE("a prompt that fills P's whole pool does not end there: D's pool is another") {
  TestWorker w({test_group()}, {4});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(64, 1), 9), target_of(4)).ok());
  const std::vector<TokenEvent> events = w.drain();
  REQUIRE(events.size() == 1);
  CHECK(events[0].finish == FinishReason::kNone);
}

TEST_CASE("a page that is pushed stays until the handoff, also out of the window") {
  TestWorker w({test_group(16, 20)}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(90, 1), 9), target_of(6)).ok());
  std::optional<StepResult> last;
  while (std::optional<StepResult> result = w.step()) last = std::move(result);
  REQUIRE(last);
  REQUIRE(last->prompts_done.size() == 1);
  CHECK(last->prompts_done[0].pages[0].size() == 6);
}

TEST_CASE("pages of our own cached prefix that D lacks are ready at the start") {
  TestWorker w({test_group()}, {64});
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(70, 1), 1), std::nullopt).ok());
  w.drain();
  REQUIRE(w.scheduler.add_prompt(test_sequence(test_tokens(70, 1), 4), target_of(3, 32)).ok());
  const std::optional<PreparedStep> prepared = w.scheduler.next_step();
  REQUIRE(prepared);
  REQUIRE(prepared->started.size() == 1);
  CHECK(prepared->started[0].cached_tokens == 64);
  REQUIRE(prepared->started[0].ready.size() == 2);
  CHECK(prepared->started[0].ready[0].dst_page == 100);
  REQUIRE(prepared->input.pushes.size() == 1);
  CHECK(prepared->input.pushes[0].dst_page == 102);
  const StepResult result = w.scheduler.complete(w.engine.execute(prepared->input));
  CHECK(result.prompts_done.size() == 1);
}

TEST_CASE("a cancelled push gives its pages to the caller and keeps them for the step in flight") {
  TestWorker w({test_group()}, {64});
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(70, 1), 9), target_of(5));
  CHECK(w.scheduler.cancel(seq)[0].empty());  // it had none yet
  const SeqId second = *w.scheduler.add_prompt(test_sequence(test_tokens(70, 2), 9), target_of(5));
  const std::optional<PreparedStep> prepared = w.scheduler.next_step();
  REQUIRE(prepared);
  GroupPages pages = w.scheduler.cancel(second);
  CHECK(pages[0].size() == 5);
  CHECK(w.scheduler.cancel(second).empty());
  pages.clear();
  CHECK(w.ledger.counts(0).used == 5);
  const StepResult result = w.scheduler.complete(w.engine.execute(prepared->input));
  CHECK(result.prompts_done.empty());
  CHECK(w.ledger.counts(0).free == 64);
  CHECK_FALSE(w.scheduler.next_step());
}

// A prompt of 40 tokens as it lies in D's pages after COMMIT.
LandedPages landed_pages(TestWorker& w, const std::vector<TokenId>& tokens) {
  LandedPages landed;
  landed.first_token = {0};
  landed.pages.push_back(w.ledger.take(
      0, w.layout.groups[0].pages_for(static_cast<int32_t>(tokens.size())), PageState::kGranted));
  uint64_t hash = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    hash = fake_hash(hash, tokens[i]);
    FakePage& page = w.engine.page(0, landed.pages[0][i / 16].page_id());
    page[i % 16] = {tokens[i], static_cast<int32_t>(i), hash};
  }
  for (const PageRef& page : landed.pages[0]) w.ledger.set_state(page, PageState::kUsed);
  return landed;
}

TokenEvent first_token(const SequenceSpec& sequence, int32_t choice, FinishReason finish) {
  TokenEvent event;
  event.id = sequence.id;
  event.choice = choice;
  event.position = static_cast<int32_t>(sequence.tokens.size());
  event.token = 40 + choice;
  event.finish = finish;
  return event;
}

TEST_CASE("a landed prompt decodes on; finished choices do not") {
  TestWorker w({test_group()}, {64});
  const SequenceSpec sequence = test_sequence(test_tokens(40, 1), 5, 3);
  const SeqId seq = w.scheduler.add_landed(
      sequence, landed_pages(w, sequence.tokens),
      {first_token(sequence, 0, FinishReason::kStop), first_token(sequence, 1, FinishReason::kNone),
       first_token(sequence, 2, FinishReason::kNone)});
  CHECK(std::string(w.scheduler.stage(seq)) == "decoding");
  CHECK(w.scheduler.running() == 2);
  CHECK(w.cache.match_length(sequence.tokens, 40, "") == 32);
  const std::vector<TokenEvent> events = w.drain();
  REQUIRE(events.size() == 8);
  CHECK(events[0].choice == 1);
  CHECK(events[0].position == 41);
  CHECK(events[7].finish == FinishReason::kLength);
  CHECK(w.ended == std::vector<SeqId>{seq});
}

TEST_CASE("a landed prompt whose choices have all finished is gone at once") {
  TestWorker w({test_group()}, {64});
  const SequenceSpec sequence = test_sequence(test_tokens(40, 1), 5);
  const SeqId seq = w.scheduler.add_landed(sequence, landed_pages(w, sequence.tokens),
                                           {first_token(sequence, 0, FinishReason::kStop)});
  CHECK(std::string(w.scheduler.stage(seq)).empty());
  CHECK(w.ledger.counts(0).cached == 2);
  CHECK(w.ledger.counts(0).free == 62);
}

TEST_CASE("choices are cancelled one by one, the last one ends the sequence") {
  TestWorker w({test_group()}, {64});
  const SeqId seq = *w.scheduler.add_prompt(test_sequence(test_tokens(40, 1), 50, 2), std::nullopt);
  for (int i = 0; i < 4; ++i) REQUIRE(w.step());
  w.scheduler.cancel(seq, 0);
  w.scheduler.cancel(seq, 7);  // there is none
  std::optional<StepResult> result = w.step();
  REQUIRE(result);
  REQUIRE(result->events.size() == 1);
  CHECK(result->events[0].choice == 1);
  const std::optional<PreparedStep> prepared = w.scheduler.next_step();
  REQUIRE(prepared);
  w.scheduler.cancel(seq, 1);
  CHECK(w.ledger.counts(0).used > 0);
  const StepResult last = w.scheduler.complete(w.engine.execute(prepared->input));
  CHECK(last.events.empty());
  CHECK(last.ended == std::vector<SeqId>{seq});
  CHECK(w.ledger.counts(0).used == 0);
}

}  // namespace
}  // namespace baton
