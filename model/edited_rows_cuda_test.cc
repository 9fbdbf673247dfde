// The engine on a GPU samples rows of every kind in one batch, through graphs and with a step in
// flight, as the CPU's sampler does from the same logits.
#include <cstdio>
#include <utility>

#include "kernels/cuda/testing.h"
#include "model/golden_model.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr int32_t kSteps = 40;
using Lane = std::vector<Sampled>;  // what one choice got, in order

// Decodes `specs`, one a lane, from `first` to `end` in one batch. A step that wants the logits
// themselves is sampled on the host, and nothing is in flight beside it.
std::vector<Lane> generate(LoadedModel& model, const GoldenReference& reference,
                           const std::vector<SamplingSpec>& specs, size_t first, size_t end,
                           bool on_host) {
  const auto prompt = static_cast<int32_t>(reference.input_ids.size());
  const auto lanes = static_cast<int32_t>(specs.size());
  std::vector<Lane> sampled(end - first);
  const auto take = [&](StepOutput output) {
    REQUIRE(output.error == "");
    for (Sampled& token : output.sampled)
      sampled[static_cast<size_t>(token.slot) - first].push_back(std::move(token));
  };
  std::vector<int32_t> slots;
  for (size_t i = first; i < end; ++i) {  // each in a step of its own, so that they compare
    const auto lane = static_cast<int32_t>(i);
    Chunk chunk = make_chunk(model, reference.input_ids, 0, prompt, lane, lanes);
    chunk.all_logits = on_host;
    chunk.sample_slots = {lane};
    take(model.engine->execute(
        {.opened_slots = {open_slot(lane, reference, specs[i])}, .chunks = {std::move(chunk)}}));
    slots.push_back(lane);
  }
  bool in_flight = false;
  for (int32_t step = 0; step < kSteps; ++step) {
    StepInput input;
    for (const int32_t lane : slots) {
      input.chunks.push_back(
          {.seq = static_cast<uint64_t>(lane),
           .first_pos = prompt + step,
           .use_last = true,
           .block_tables = scattered_tables(model, prompt + step + 1, prompt + step, lane, lanes),
           .sample_slots = {lane},
           .all_logits = on_host});
    }
    model.engine->submit(std::move(input));
    if (in_flight) take(model.engine->collect());
    in_flight = !on_host;
    if (on_host) take(model.engine->collect());
  }
  if (in_flight) take(model.engine->collect());
  model.engine->execute({.closed_slots = slots});
  return sampled;
}

// Of every kind, and of kinds together; the first is greedy and nothing else.
std::vector<SamplingSpec> all_kinds(const GoldenReference& reference, int32_t vocab) {
  const std::vector<TokenId>& likely = reference.greedy;
  std::vector<SamplingSpec> specs(11, SamplingSpec{.temperature = 0, .ignore_eos = true});
  specs[1].repetition_penalty = 1.5F;
  specs[2].presence_penalty = 1.0F;
  specs[2].frequency_penalty = 0.5F;
  specs[3].logit_bias = {{likely[0], -3.0F}, {likely[1], 4.0F}, {likely[0], -1.0F}};
  for (TokenId id = 0; id < vocab; id += 2) specs[4].allowed_token_ids.push_back(id);
  specs[5].bad_words = {{likely[0]}, {likely[1], likely[2]}, {likely[3], likely[4], likely[5]}};
  for (TokenId id = 0; id < vocab; id += 3)
    for (TokenId next = 0; next < vocab; next += 5) specs[6].bad_words.push_back({id, next});
  specs[7].min_tokens = 20;
  specs[7].eos_ids = {likely.begin(), likely.begin() + 8};
  specs[8].logprobs = 20;
  specs[9] = specs[2];
  specs[9].logprobs = 5;
  specs[9].seed = 11;
  specs[9].temperature = 1.2F;
  specs[9].top_k = 40;
  specs[10] = specs[4];
  specs[10].seed = 12;
  specs[10].temperature = 0.9F;
  specs[10].repetition_penalty = 1.2F;
  specs[10].logit_bias = specs[3].logit_bias;
  specs[10].bad_words = specs[6].bad_words;
  specs[10].min_tokens = 30;
  specs[10].eos_ids = specs[7].eos_ids;
  specs[10].logprobs = 0;
  return specs;
}

std::vector<TokenId> tokens_of(const Lane& lane) {
  std::vector<TokenId> tokens;
  for (const Sampled& sampled : lane) tokens.push_back(sampled.token);
  return tokens;
}

void check_equal(const Lane& got, const Lane& want) {
  REQUIRE(tokens_of(got) == tokens_of(want));
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].logprob == doctest::Approx(want[i].logprob).epsilon(1e-5));
    REQUIRE(got[i].top.size() == want[i].top.size());
    for (size_t k = 0; k < got[i].top.size(); ++k) {
      CHECK(got[i].top[k].token == want[i].top[k].token);
      CHECK(got[i].top[k].logprob == doctest::Approx(want[i].top[k].logprob).epsilon(1e-5));
    }
  }
}

}  // namespace

TEST_CASE("rows of every kind beside greedy ones get the CPU sampler's tokens through graphs") {
  if (no_gpu()) return;
  for (const char* family : {"llama", "qwen3"}) {
    const GoldenReference reference = read_golden_reference(family);
    EngineOptions options = golden_options(64);
    options.device = "cuda";
    options.kv_bytes = 64 << 20;
    options.deterministic = true;  // a row alone and the row in a batch have the same logits
    options.running_max = 32;
    LoadedModel model = load_model(golden_path(family), options, nullptr);
    const std::vector<SamplingSpec> specs = all_kinds(reference, model.facts.vocab_size);
    const std::vector<Lane> got = generate(model, reference, specs, 0, specs.size(), false);
    for (size_t i = 0; i < specs.size(); ++i) {
      CAPTURE(family);
      CAPTURE(i);
      const std::vector<Lane> want = generate(model, reference, specs, i, i + 1, true);
      REQUIRE(want[0].size() == kSteps + 1);
      check_equal(got[i], want[0]);
      const bool greedy = i == 0 || i == 8;
      CHECK((tokens_of(got[i]) == tokens_of(got[0])) == greedy);
    }
  }
}

TEST_CASE("a table of counts is right again after a step whose logits the host has read") {
  if (no_gpu()) return;
  const GoldenReference reference = read_golden_reference("llama");
  EngineOptions options = golden_options(64);
  options.device = "cuda";
  options.deterministic = true;
  LoadedModel model = load_model(golden_path("llama"), options, nullptr);
  const std::vector<SamplingSpec> specs = {
      {.temperature = 0, .frequency_penalty = 0.4F, .repetition_penalty = 1.3F}};
  const std::vector<TokenId> want = tokens_of(generate(model, reference, specs, 0, 1, false)[0]);
  const auto prompt = static_cast<int32_t>(reference.input_ids.size());
  std::vector<TokenId> got;
  for (int32_t step = 0; step <= kSteps; ++step) {
    StepInput input;
    if (step == 0) {
      input.opened_slots = {open_slot(0, reference, specs[0])};
      input.chunks = {make_chunk(model, reference.input_ids, 0, prompt, 0, 1)};
    } else {
      input.chunks = {
          {.first_pos = prompt + step - 1,
           .use_last = true,
           .block_tables = scattered_tables(model, prompt + step, prompt + step - 1, 0, 1)}};
    }
    input.chunks[0].sample_slots = {0};
    input.chunks[0].all_logits = step % 5 == 3 || step % 5 == 4;  // one or two in a row
    const StepOutput output = model.engine->execute(std::move(input));
    REQUIRE(output.error == "");
    got.push_back(output.sampled.at(0).token);
  }
  CHECK(got == want);
}
