// The one scheduler of every role: admits sequences, takes their pages, packs prefill chunks and
// decodes into steps, grows, preempts and resumes. Owned by the worker's loop; not thread-safe;
// never blocks, never computes. Roles differ by what is added to it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/messages.h"
#include "base/status.h"
#include "config/config.h"
#include "model/engine.h"
#include "scheduler/page_ledger.h"
#include "scheduler/prefix_cache.h"

namespace baton {

using SeqId = uint64_t;  // the scheduler's handle of one request attempt (all its choices); never
                         // reused

struct SequenceSpec {
  AttemptId id;
  SamplingSpec spec;
  int32_t prompt_len = 0;
  std::vector<TokenId> tokens;  // prompt, or prompt + accepted tokens on a replay
};

// Where the pages of a prompt go while it is computed: P's side of a grant.
struct PushTarget {
  uint64_t transfer = 0;
  int32_t cached_tokens = 0;       // D has these; push positions from here on
  std::vector<GrantGroup> groups;  // D's page ids
};

using GroupPages = std::vector<std::vector<PageRef>>;  // per kv_group, in order of position

// The pages of a landed prompt at D, per kv_group; page i of group g holds positions
// first_token[g] + i * page_tokens...
struct LandedPages {
  std::vector<int32_t> first_token;
  GroupPages pages;  // D's own cached prefix and the granted ones together, contiguous
};

// A prompt has got its pages and its first chunk is in the step: what is complete already can be
// pushed at once. Told once a sequence, also for local ones (without pages).
struct PromptStarted {
  SeqId seq = 0;
  int32_t cached_tokens = 0;    // from our prefix cache
  std::vector<PushPage> ready;  // pages of our cached prefix that D lacks
};

// All tokens of a prompt are computed. A pushed prompt leaves the scheduler here, with its pages; a
// local one decodes on.
struct PromptDone {
  SeqId seq = 0;
  AttemptId id;
  int32_t cached_tokens = 0;
  std::vector<TokenEvent> first_tokens;  // one a choice that was not cancelled, in order
  bool pushed = false;
  GroupPages pages;  // if pushed: the references, to be held until the transfer has ended
};

struct StepResult {
  std::vector<TokenEvent> events;  // everything sampled, first tokens included
  std::vector<PromptDone> prompts_done;
  // Local and landed sequences whose last choice has finished, or was cancelled by its number: they
  // are gone. One that ended outside of a step is reported by the next one that completes.
  std::vector<SeqId> ended;
  std::vector<PromptLogprobs> prompt_logprobs;
};

struct PreparedStep {
  StepInput input;
  std::vector<PromptStarted> started;
  std::vector<SeqId> pushed_whole;  // prompts of handoffs whose last tokens are in this step
};

class Scheduler {
 public:
  // Borrows layout, ledger, prefix_cache and clock, which must outlive it.
  Scheduler(const SchedulerConfig& config, const KvLayout& layout, int32_t context_len,
            PageLedger& ledger, PrefixCache& prefix_cache, const Clock& clock);
  ~Scheduler();

  // A prompt to compute here. With `push`: a handoff (P's role); it samples each choice's first
  // token, then PromptDone hands the pages over. Without: local; it decodes on here, and ends here
  // when max_tokens is 1, or 0 (scoring: nothing is sampled). Waits (holding nothing) until all
  // pages of its prompt are available. Errors: RESOURCE_EXHAUSTED when scheduler.waiting_max
  // requests wait; INVALID_ARGUMENT as check(), and for a grant that does not cover the prompt.
  Result<SeqId> add_prompt(SequenceSpec sequence, std::optional<PushTarget> push);

  // A prompt whose pages have landed; `first_tokens` as in COMMIT (finished ones included; a choice
  // without one was cancelled). Starts to decode at the next step. The partial last page is copied
  // per choice. Always succeeds: the pages are here already. REQUIRES: check() was ok.
  SeqId add_landed(SequenceSpec sequence, LandedPages pages,
                   const std::vector<TokenEvent>& first_tokens);

  // `tokens`: of its SequenceSpec. INVALID_ARGUMENT for one that can never run here: no token left
  // to sample, more choices than running_max (unless `pushed`), or larger than the pool (its prompt
  // if `pushed`, else prompt + max_tokens clipped to the context).
  Status check(const SamplingSpec& spec, int32_t prompt_len, size_t tokens, bool pushed) const;

  // Ends a sequence, or one choice of it (by its absolute number). Its pages stay referenced until
  // the steps in flight that write to them have completed. Returns the references of a pushed
  // prompt that ends with this, which the caller must hold until the transfer has ended (empty
  // otherwise). An unknown sequence or choice is no error: it may have ended just before.
  GroupPages cancel(SeqId seq, int32_t choice = -1);

  // The next step, or nothing: no work, or config.steps_ahead + 1 steps are in flight already, or
  // the work there is depends on their results. Decodes first, then prefill chunks up to the
  // budget of tokens and of time (chunk_ms). Prompts go in an order that is fair between routers
  // (fair_order.h) and by priority, else by age; the first that waits is never overtaken.
  std::optional<PreparedStep> next_step();
  // Steps complete in the order in which they were given out.
  StepResult complete(const StepOutput& output);
  // Sequences that have ended outside of a step (their last choice was cancelled) since complete()
  // or this was called last.
  std::vector<SeqId> take_ended();

  // D's admission gives no grants while this holds: a preempted choice waits to resume, or a
  // running one for a page.
  bool preempted_waiting() const;
  int64_t preemptions() const;    // since the start
  int32_t running() const;        // choices in the batch: decoding, or of prompts being computed
  int32_t waiting() const;        // requests without pages, and preempted choices
  int64_t queued_tokens() const;  // prompt tokens not computed yet
  // Running choices of the group: what headroom_pages multiplies.
  int32_t growth_pages_wanted(int32_t group) const;
  // Pages for which the first waiting request waits; landings that take them starve it.
  int32_t head_pages_wanted(int32_t group) const;
  int64_t oldest_wait_us() const;  // age of the oldest waiting request, 0 if none
  // Where this request is now, by its furthest choice; for /debug and cancel tests:
  // "queued", "prefilling", "decoding", "preempted"; "" if unknown.
  const char* stage(SeqId seq) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
