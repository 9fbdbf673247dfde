#include "tests/sim/workload.h"

namespace baton::sim {

SamplingSpec random_spec(const Workload& load, Random& random) {
  SamplingSpec spec;
  spec.seed = random.next();
  spec.n = load.n > 0 ? load.n : random.chance(0.2) ? random.between(2, 3) : 1;
  spec.max_tokens = load.max_tokens > 0  ? load.max_tokens
                    : random.chance(0.1) ? 1
                                         : random.between(2, 40);
  for (TokenId token = 0; token < load.eos_tokens; ++token) spec.eos_ids.push_back(token);
  spec.ignore_eos = load.eos_tokens == 1 && random.chance(0.3);
  spec.temperature = 1;
  return spec;
}

std::vector<TokenId> random_prompt(const Workload& load, bool large, Random& random) {
  const int32_t family = random.between(1, 3);
  const int32_t length =
      large ? load.large_tokens : random.between(load.prompt_min, load.prompt_max);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i)
    prompt.push_back(i < 56 ? (family * 7 + i) % kVocab : random.between(0, kVocab - 1));
  return prompt;
}

std::vector<TokenId> next_turn(const Client& before, Random& random) {
  std::vector<TokenId> prompt = before.request.prompt;
  prompt.insert(prompt.end(), before.received[0].begin(), before.received[0].end());
  for (int32_t i = random.between(20, 40); i > 0; --i)
    prompt.push_back(random.between(0, kVocab - 1));
  return prompt;
}

}  // namespace baton::sim
