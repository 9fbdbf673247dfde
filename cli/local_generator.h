// One process, one request at a time, no scheduler: the engine driven directly over pages 0, 1, 2,
// ... This is `baton generate`, and what the tests and the benchmark take for the truth when they
// compare with the whole system. Single-threaded.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/engine.h"

namespace baton {

struct GenerationStats {
  int32_t prompt_tokens = 0;
  int32_t decoded_tokens = 0;  // of all choices, without the first ones, which the prefill yields
  int64_t prefill_us = 0;
  int64_t decode_us = 0;
};

class LocalGenerator {
 public:
  // Loads the model with room for `tokens_max` tokens: prompts and answers of all choices of the
  // largest request. Throws ConfigError.
  LocalGenerator(const std::string& path, EngineOptions options, int64_t tokens_max);

  const ModelFacts& facts() const { return model_.facts; }
  const KvLayout& layout() const { return model_.layout; }

  // Runs a request to its end; `on_token` is told of every token as it is sampled, choices in turn.
  // The choices share the prompt's whole pages. `prompt_logits`, if not null, gets float32 [prompt,
  // vocab]. Errors: INVALID_ARGUMENT for a prompt that is empty, too long or not in the vocabulary;
  // INTERNAL for a failed step.
  Result<GenerationStats> generate(const std::vector<TokenId>& prompt, const SamplingSpec& spec,
                                   const std::function<void(const Sampled&)>& on_token,
                                   std::vector<float>* prompt_logits = nullptr);

 private:
  struct ChoiceRun {
    int32_t slot = 0;
    int32_t position = 0;  // of the last sampled token, whose K and V are not in the pages yet
    bool ended = false;
    std::vector<std::vector<int32_t>> block_tables;  // per kv_group
  };

  Status check(const std::vector<TokenId>& prompt, const SamplingSpec& spec) const;
  std::vector<ChoiceRun> place(int32_t prompt_len, const SamplingSpec& spec) const;
  StepInput first_step(const std::vector<TokenId>& prompt, const SamplingSpec& spec,
                       const std::vector<ChoiceRun>& choices) const;
  StepInput decode_step(const std::vector<ChoiceRun>& choices) const;
  std::vector<PageCopy> partial_page_copies(int32_t prompt_len,
                                            const std::vector<ChoiceRun>& choices) const;
  StepOutput execute(StepInput input, int64_t* compute_us);
  void close(const std::vector<ChoiceRun>& choices);

  const int32_t step_tokens_max_;
  LoadedModel model_;
};

}  // namespace baton
