// One client request from its tokens to its answer: text and counts of all its choices, streamed or
// whole. Kept alive by the dispatcher's generations (as their sink) and gone with them. Router loop
// thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "router/dispatcher.h"
#include "router/generation.h"
#include "router/http_types.h"
#include "router/metrics.h"
#include "router/openai_logprobs.h"
#include "router/openai_request.h"
#include "router/openai_response.h"
#include "router/refusal_log.h"
#include "router/text_output.h"

namespace baton {

// What client requests work with; outlives them.
struct RequestContext {
  Dispatcher& dispatcher;
  const Placement& placement;
  RouterMetrics& metrics;
  RefusalLog& refusals;
  const TextModel& model;
  const Clock& clock;
};

// How a request came in.
struct RequestOrigin {
  std::string id;           // the client's or a random one, for the answer's id
  std::string traceparent;  // the client's, for the log; may be empty
  bool logged = false;      // its end is a line in the log
  std::string model_name;   // as served
  int32_t context_len = 0;
  uint64_t seed = 0;  // for a request without one
  int64_t received_us = 0;
};

class ClientRequest final : public GenerationSink,
                            public std::enable_shared_from_this<ClientRequest> {
 public:
  ClientRequest(const RequestContext& context, ApiRequest api, RequestOrigin origin,
                std::shared_ptr<HttpReply> reply);

  // Submits all prompts, or answers with an error.
  void start();

  bool on_token(int32_t prompt_index, const TokenEvent& event) override;
  void on_workers(int32_t prompt_index, const std::string& prefill,
                  const std::string& decode) override;
  void on_first_token(const FirstTokenTimes& times) override { first_token_times_ = times; }
  void on_prompt_logprobs(int32_t prompt_index, const PromptLogprobs& logprobs) override;
  void on_cached_tokens(int32_t prompt_index, int32_t cached_tokens) override;
  void on_failed(int32_t prompt_index, const Status& status) override;

 private:
  struct Choice {
    TextOutput output;
    ChoiceLogprobs logprobs;
    std::vector<TokenId> token_ids;  // not yet sent; only when asked for
    std::string text;                // whole, when not streamed
    int64_t first_token_us = 0;
    int64_t last_token_us = 0;
    bool started = false;  // its first chunk has been sent
  };
  struct Prompt {
    std::vector<TokenLogprob> logprobs;
    std::vector<std::vector<TokenLogprob>> top;
  };

  Admission submit_all();
  GenerationRequest generation_request(size_t prompt_index) const;
  SamplingSpec spec_of(size_t prompt_index) const;
  void measure(Choice& choice);
  void measure_end(const Choice& choice);
  void stream(int32_t index, Choice& choice);
  ChoicePart part_of(int32_t index, Choice& choice);
  void add_echo(int32_t index, Choice& choice);
  void complete();
  void cancel_all();
  void count(const std::string& finished_reason);
  // Counts it and writes its line in the log; `why` it failed.
  void report(const std::string& finished_reason, const Status& why = {});

  const RequestContext context_;
  const ApiRequest api_;
  const RequestOrigin origin_;
  const std::shared_ptr<HttpReply> reply_;
  const ResponseWriter writer_;
  std::vector<Choice> choices_;  // prompt by prompt, n each
  std::vector<Prompt> prompts_;
  std::vector<GenerationId> generations_;
  UsageCounts usage_;
  FirstTokenTimes first_token_times_;  // of the last one that began
  ServedBy workers_;
  bool workers_told_ = false;  // by a chunk, as they are now
  size_t ended_ = 0;
  bool streaming_ = false;  // the answer's head has been sent
  bool done_ = false;
};

}  // namespace baton
