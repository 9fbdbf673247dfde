// For the scheduler's unit tests: one worker's parts with small pages, and shorthands to drive
// them.
#pragma once

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "scheduler/fake_engine.h"
#include "scheduler/scheduler.h"

namespace baton {

inline KvGroup test_group(int32_t page_tokens = 16, int32_t window = 0) {
  KvGroup group;
  group.layers = {0};
  group.num_kv_heads = group.head_dim = 1;
  group.page_tokens = page_tokens;
  group.window = window;
  return group;
}

// `count` tokens that differ for each `first`.
inline std::vector<TokenId> test_tokens(int32_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first * 1000);
  return tokens;
}

inline SequenceSpec test_sequence(std::vector<TokenId> tokens, int32_t max_tokens, int32_t n = 1) {
  SequenceSpec sequence;
  sequence.id = {{1, static_cast<uint64_t>(tokens.empty() ? 0 : tokens[0])}, 0};
  sequence.spec.seed = 11;
  sequence.spec.n = n;
  sequence.spec.max_tokens = max_tokens;
  sequence.spec.ignore_eos = true;
  sequence.prompt_len = static_cast<int32_t>(tokens.size());
  sequence.tokens = std::move(tokens);
  return sequence;
}

inline SchedulerConfig test_config() {
  SchedulerConfig config;
  config.step_tokens = 64;
  config.chunk_tokens = 32;
  config.running_max = 8;
  config.waiting_max = 16;
  config.steps_ahead = 1;
  config.chunk_ms = 0;
  return config;
}

struct TestWorker {
  TestWorker(std::vector<KvGroup> groups, const std::vector<int32_t>& pages,
             const SchedulerConfig& config = test_config(), int32_t context_len = 4096)
      : layout{std::move(groups)},
        ledger(pages),
        cache(layout, ledger, 5, config.prefix_cache),
        engine(layout, pages, context_len),
        scheduler(config, layout, context_len, ledger, cache, clock) {}

  // Prepares, executes and completes one step; nothing if there is none.
  std::optional<StepResult> step() {
    std::optional<PreparedStep> prepared = scheduler.next_step();
    if (!prepared) return std::nullopt;
    return scheduler.complete(engine.execute(prepared->input));
  }

  // Steps until there is nothing to do; all events, in order.
  std::vector<TokenEvent> drain() {
    std::vector<TokenEvent> events;
    while (std::optional<StepResult> result = step()) {
      events.insert(events.end(), result->events.begin(), result->events.end());
      for (SeqId seq : result->ended) ended.push_back(seq);
    }
    return events;
  }

  FakeClock clock;
  KvLayout layout;
  PageLedger ledger;
  PrefixCache cache;
  FakeEngine engine;
  Scheduler scheduler;
  std::vector<SeqId> ended;
};

}  // namespace baton
