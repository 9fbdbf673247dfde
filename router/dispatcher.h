// Finds a place for every request, follows its attempts and repairs what breaks: OPEN and PREFILL,
// PLACED and REFUSED, tokens in order, replay after the loss of a worker (docs/protocol.md,
// "R's rules"). Driven by calls: submissions and cancels from the API, link events, a timer. Router
// loop thread only; sends through the Outbox and never waits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/link.h"
#include "base/messages.h"
#include "base/status.h"
#include "config/config.h"
#include "router/generation.h"
#include "router/metrics.h"
#include "router/placement.h"
#include "router/relay.h"

namespace baton {

// Whether a request is let in; if not, a try `retry_after_s` later will do.
struct Admission {
  Status status;
  int64_t retry_after_s = 0;
};

class Dispatcher {
 public:
  Dispatcher(const RouteConfig& config, Epoch router_epoch, Outbox& outbox, const Clock& clock,
             Placement& placement, RouterMetrics& metrics);

  // dispatcher_admission.cc, before anything is done for a request. RESOURCE_EXHAUSTED when so many
  // more would overflow the queue (route.queue_max).
  Admission admit(size_t generations) const;
  // RESOURCE_EXHAUSTED when the first token of this one, which came at `received_us`, is predicted
  // later than route.ttft_max_ms allows.
  Admission admit_in_time(const GenerationRequest& request, int64_t received_us) const;
  // For one that has failed for want of workers: seconds until what waits now is computed.
  int64_t retry_after_s() const;
  // OK, or INVALID_ARGUMENT when OPEN or PREFILL with all tokens of a choice would be longer than a
  // message may be, which would cost the worker's link.
  static Status sendable(const SamplingSpec& spec, size_t prompt_tokens);
  // REQUIRES: admit() and sendable() said OK. The sink hears of the generation later, never from
  // inside of this call.
  GenerationId submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink);
  // The caller has lost interest; its sink hears nothing more. Unknown ids are ignored.
  void cancel(GenerationId id);

  // `address`: as dialled, which discovery may have something to say of.
  void on_link_up(LinkId link, const PeerInfo& peer, const std::string& address = "");
  void on_link_down(LinkId link, const std::string& reason);
  void on_message(LinkId link, const Message& message);
  // To be called every few milliseconds: deadlines, retries of what was refused, silent workers.
  void on_timer();

  size_t waiting() const { return waiting_; }  // without a token so far
  size_t active() const { return generations_.size(); }

 private:
  struct Choice {
    explicit Choice(int32_t first_position) : relay(first_position) {}
    ChoiceRelay relay;
    std::vector<TokenId> accepted;  // handed to the sink
    bool finished = false;
  };
  struct Generation {
    GenerationId id = 0;
    GenerationRequest request;
    std::shared_ptr<GenerationSink> sink;
    std::vector<Choice> choices;
    std::string kv_compat_id;  // of the workers that made the tokens so far; empty before the first
    int64_t deadline_us = 0;
    int32_t cached_tokens = -1;    // as told to the sink
    int32_t scored_positions = 0;  // prompt logprobs told to the sink so far
    bool waiting = true;           // no token has come yet
    int64_t submitted_us = 0;
    int64_t first_token_us = 0;  // when it is predicted; 0: not known
    std::vector<RequestId> parts;
  };
  // One request of the protocol: all choices of a generation, or after a replay of n > 1 one of
  // them.
  struct Part {
    RequestId id;
    GenerationId generation = 0;
    int32_t first_choice = 0;
    int32_t n = 1;
    uint32_t attempt = 0;
    int32_t recoveries = 0;  // losses since the last new token
    int32_t refusals = 0;
    int64_t queued_until_us = 0;  // then it is answered with an error; queued parts only
    int64_t retry_at_us = 0;
    // The current attempt:
    bool sent = false;
    int64_t sent_us = 0;
    LinkId computes = 0;           // the worker that has the prompt to compute
    bool answered = false;         // somebody has spoken of it
    LinkId prefill = 0;            // 0: none, or no longer needed
    std::vector<LinkId> opened;    // decode workers that got OPEN and no CLOSE
    LinkId decode = 0;             // the one that has it; 0 before PLACED
    bool decode_spoke = false;     // has sent a token: it does not need the prefill worker any more
    LinkId spoke = 0;              // whose tokens the sink knows the workers of
    int64_t placed_us = 0;         // PLACED came; 0: not so far, and likewise below
    int64_t computed_us = 0;       // the prompt is computed (USAGE)
    int64_t prefill_spoke_us = 0;  // the prefill worker's first token came
    // Tokens that came before their prompt's log-probabilities, which take another connection.
    std::vector<std::pair<LinkId, TokenEvent>> unscored;
    std::string kv_compat_id;
    std::vector<uint64_t> chain;  // of the tokens to be sent, for the history
    size_t chained_tokens = 0;    // so many
    // What Placement has been told of it, to be taken back:
    LinkId prefill_loaded = 0;
    int64_t prefill_load = 0;
    LinkId decode_loaded = 0;
    LinkId avoid = 0;  // has let it down, for the next attempt
  };
  // When it came, moved by route.priority_wait_ms for each step of priority, so that nobody
  // starves; age; sequence of the part.
  using QueueKey = std::tuple<int64_t, GenerationId, uint64_t>;

  void handle(LinkId link, const Placed& placed);
  void handle(LinkId link, const Refused& refused);
  void handle(LinkId link, const Failed& failed);
  void handle(LinkId link, const Events& events);
  void handle(LinkId link, const PromptLogprobs& logprobs);
  void handle(LinkId link, const Usage& usage);
  void take_token(LinkId link, const TokenEvent& event);
  static bool scored(const Generation& generation);
  void take_unscored(const Generation& generation);
  void tell_workers(Part& part, const Generation& generation, LinkId from);
  // True while the part lives on.
  bool release(Part& part, Generation& generation, const TokenEvent& event, LinkId from);
  void end_part(Part& part, Generation& generation, const TokenEvent& last, LinkId from);

  Part& add_part(Generation& generation, int32_t first_choice, int32_t n);
  void enqueue(Part& part, int64_t retry_at_us);
  void place_queued();
  bool place(Part& part);
  void send_attempt(Part& part, Generation& generation, const Plan& plan,
                    std::vector<TokenId> tokens);
  void settle_on(Part& part, LinkId decode);  // CLOSEs the other candidates
  void stop_attempt(Part& part);              // CANCELs it everywhere
  void replay(Part& part, const std::string& reason);
  void erase_part(RequestId id);
  void erase_generation(GenerationId id);
  void fail(GenerationId id, const Status& status);
  void fail_overdue(GenerationId id);
  void set_load(Part& part, LinkId prefill, int64_t prefill_tokens, LinkId decode);
  Part* current(const AttemptId& id);  // null and counted when stale
  size_t accepted_tokens(const Part& part, const Generation& generation) const;
  std::vector<TokenId> tokens_of(const Part& part, const Generation& generation) const;
  QueueKey queue_key(const Part& part) const;
  int64_t queue_order(int64_t submitted_us, int32_t priority) const;
  std::optional<TtftForecast> forecast(const GenerationRequest& request) const;
  double wait_s() const;
  int64_t unplaced_tokens(int64_t order_max) const;
  void give_up_queued(const Part& part);
  void move_unanswered();
  bool is_stuck(const Part& part) const;

  const RouteConfig config_;
  const Epoch epoch_;
  Outbox& outbox_;
  const Clock& clock_;
  Placement& placement_;
  RouterMetrics& metrics_;

  uint64_t next_sequence_ = 1;
  GenerationId next_generation_ = 1;
  std::map<GenerationId, Generation>
      generations_;  // in order of deadline too: all have the same time
  std::unordered_map<RequestId, Part> parts_;
  std::set<QueueKey> queue_;  // parts that are to be placed, first served first
  size_t waiting_ = 0;
  int64_t next_answer_check_us_ = 0;
};

}  // namespace baton
