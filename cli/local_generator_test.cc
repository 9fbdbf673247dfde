#include "cli/local_generator.h"

#include "model/golden_model.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

std::vector<std::vector<TokenId>> run(LocalGenerator& generator, const std::vector<TokenId>& prompt,
                                      const SamplingSpec& spec,
                                      std::vector<float>* logits = nullptr) {
  std::vector<std::vector<TokenId>> choices(static_cast<size_t>(spec.n));
  const Result<GenerationStats> stats = generator.generate(
      prompt, spec,
      [&](const Sampled& sampled) {
        choices[static_cast<size_t>(sampled.slot)].push_back(sampled.token);
      },
      logits);
  REQUIRE(stats.status().message() == "");
  CHECK(stats->prompt_tokens == static_cast<int32_t>(prompt.size()));
  return choices;
}

EngineOptions options(int32_t page_tokens, int32_t step_tokens_max) {
  return {.threads = 1, .page_tokens = page_tokens, .step_tokens_max = step_tokens_max};
}

}  // namespace

TEST_CASE("greedy text is the reference's, whatever the chunks, and the prompt's logits come out") {
  for (const char* family : {"llama", "mistral-swa"}) {
    const GoldenReference reference = read_golden_reference(family);
    for (const int32_t step_tokens : {512, 16, 17}) {
      LocalGenerator generator(golden_path(family), options(16, step_tokens), 200);
      std::vector<float> logits;
      const auto choices =
          run(generator, reference.input_ids, {.max_tokens = 48, .temperature = 0}, &logits);
      CHECK(choices[0] == reference.greedy);
      CHECK(relative_l2(logits, reference.logits) <= 1e-3);
    }
  }
}

TEST_CASE("choices of one request equal each alone: they share the prompt's whole pages only") {
  const GoldenReference reference = read_golden_reference("qwen3");
  for (const size_t prompt_len : {95, 96, 97}) {  // 16-token pages: partial, full, one token over
    const std::vector<TokenId> prompt(
        reference.input_ids.begin(),
        reference.input_ids.begin() + static_cast<int64_t>(prompt_len));
    LocalGenerator generator(golden_path("qwen3"), options(16, 64), 600);
    SamplingSpec spec{.seed = 42, .n = 4, .max_tokens = 24, .temperature = 1.5F, .top_p = 0.9F};
    const auto together = run(generator, prompt, spec);
    CHECK(together[0] != together[1]);
    for (int32_t choice = 0; choice < 4; ++choice) {
      SamplingSpec alone = spec;
      alone.n = 1;
      alone.first_choice = choice;
      CHECK(run(generator, prompt, alone)[0] == together[static_cast<size_t>(choice)]);
    }
  }
}

TEST_CASE("a request that does not fit is refused with the reason, and the next one runs") {
  LocalGenerator generator(golden_path("llama"), options(16, 64), 100);
  const auto nothing = [](const Sampled&) {};
  CHECK(generator.generate({}, {}, nothing).status().code() == Code::kInvalidArgument);
  CHECK(generator.generate({300}, {}, nothing).status().code() == Code::kInvalidArgument);
  CHECK(generator.generate(std::vector<TokenId>(5000, 1), {}, nothing).status().code() ==
        Code::kInvalidArgument);
  CHECK(generator.generate({1, 2}, {.n = 90, .max_tokens = 30}, nothing).status().code() ==
        Code::kInvalidArgument);
  CHECK(run(generator, {1, 2}, {.max_tokens = 3, .ignore_eos = true})[0].size() == 3);
}
