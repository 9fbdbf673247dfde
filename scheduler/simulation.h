// For scheduler/property_test.cc: a prefill worker and a decode worker as the loop would drive
// their schedulers, with fake engines and a handoff that copies cells; requests of every kind;
// every token compared with what the model would say. Throws std::logic_error at the first thing
// that is wrong.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "scheduler/fake_engine.h"
#include "scheduler/scheduler.h"

namespace baton {

struct SimulatedWorker {
  SimulatedWorker(const SchedulerConfig& config, const KvLayout& layout,
                  const std::vector<int32_t>& pages, int32_t context_len, const Clock& clock);

  PageLedger ledger;
  PrefixCache cache;
  FakeEngine engine;
  Scheduler scheduler;
  std::deque<StepInput> in_flight;  // given out, executed as late as possible
};

struct SimulationOptions {
  uint32_t seed = 0;
  int32_t requests = 60;
};

// What a run did, so that a test can ask whether it met the cases it is for.
struct SimulationCounts {
  int64_t steps = 0, tokens = 0, handoffs = 0, cancels = 0, preempted = 0, page_copies = 0;
  int64_t hit_tokens = 0, skipped = 0, replays = 0, ready_pushes = 0;
  std::map<std::string, int64_t> cancelled_at;  // by stage
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  ~Simulation();
  void run();  // until every request has ended
  const SimulationCounts& counts() const { return counts_; }

 private:
  struct Request {
    SequenceSpec sequence;
    std::vector<std::vector<TokenId>> expected;  // per choice: generated tokens from tokens.size()
    std::vector<std::vector<TokenId>> got;
    std::vector<bool> ended;  // finished or cancelled
    std::vector<bool> cancelled;
    SeqId at_prefill = 0;  // handles while there
    SeqId at_decode = 0;
    bool pushed = false;
    bool logprobs_seen = false;
  };

  struct Transfer {  // D's grant and P's source pages, until both sides are done with them
    uint64_t id = 0;
    size_t request = 0;
    int32_t cached_tokens = 0;
    std::vector<int32_t> first_token;
    GroupPages landing;  // D: cached prefix, then granted
    GroupPages source;   // P: from PromptDone or cancel
    std::vector<PushPage> ready;
    std::vector<TokenEvent> first_tokens;
    bool computed = false;
    bool cancelled = false;
    uint64_t last_step = 0;  // of P, that may push into it
  };

  int32_t below(int32_t end) {
    return static_cast<int32_t>(random_() % static_cast<uint32_t>(end));
  }
  KvLayout random_layout();
  SchedulerConfig random_config();
  SequenceSpec random_sequence();
  void expect(Request& request);
  void add_request();
  bool reserve(size_t index);  // D's grant; false: full
  void step(SimulatedWorker& worker);
  void complete(SimulatedWorker& worker);
  void copy_pages(const std::vector<PushPage>& pushes);
  void accept_event(const TokenEvent& event);
  void prompt_done(PromptDone done);
  void land(size_t which);
  void copy_pages_of(const Transfer& transfer);
  void drop_cancelled(uint64_t completed_step);
  void cancel_something();
  std::string stage_of(size_t index) const;
  void toggle_foreign_grant();
  void check_foreign_grant() const;
  void check_counts() const;
  bool all_ended() const;
  bool act();  // one random action; false if nothing could be done

  std::mt19937 random_;
  SimulationOptions options_;
  SimulationCounts counts_;
  FakeClock clock_;
  int32_t context_len_ = 0;
  KvLayout layout_;
  std::unique_ptr<SimulatedWorker> prefill_;
  std::unique_ptr<SimulatedWorker> decode_;
  std::vector<Request> requests_;
  std::vector<size_t> waiting_for_grant_;
  std::vector<Transfer> transfers_;
  std::vector<PageRef> foreign_;  // granted to somebody who writes to them at once
};

}  // namespace baton
