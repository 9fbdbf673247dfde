// The engine's contract: slots, use_last, several choices of one chunk, page copies, prompt
// log-probabilities, the layer sink.
#include "model/engine.h"

#include <algorithm>
#include <cstring>

#include "model/golden_model.h"
#include "model/sampler.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

class RecordingSink final : public LayerSink {
 public:
  void layer_written(const StepInput& step, int32_t layer) override {
    calls.emplace_back(step.step, layer);
  }
  std::vector<std::pair<uint64_t, int32_t>> calls;
};

// One sequence of the llama golden model; lane 0 of two.
struct Fixture {
  explicit Fixture(int32_t page_tokens = 16)
      : reference(read_golden_reference("llama")),
        model(load_golden("llama", golden_options(page_tokens), &sink)) {}

  Chunk prompt_chunk(int32_t begin, int32_t end, std::vector<int32_t> slots = {}) const {
    return {.seq = 7,
            .first_pos = begin,
            .tokens = {reference.input_ids.begin() + begin, reference.input_ids.begin() + end},
            .block_tables = tables(),
            .sample_slots = std::move(slots)};
  }
  Chunk decode_chunk(int32_t position, int32_t slot) const {
    return {.seq = 7,
            .first_pos = position,
            .use_last = true,
            .block_tables = tables(),
            .sample_slots = {slot}};
  }
  SlotOpen open(int32_t slot, SamplingSpec spec, int32_t choice = 0) const {
    return {.slot = slot,
            .spec = std::move(spec),
            .choice = choice,
            .prompt_len = static_cast<int32_t>(reference.input_ids.size()),
            .tokens = reference.input_ids};
  }
  std::vector<std::vector<int32_t>> tables() const { return scattered_tables(model, 200, 0, 0, 2); }
  StepOutput execute(const StepInput& input) { return model.engine->execute(input); }

  RecordingSink sink;
  GoldenReference reference;
  LoadedModel model;
};

}  // namespace

TEST_CASE("greedy decoding with use_last gives the reference's continuation and ends by length") {
  Fixture f;
  StepOutput output = f.execute({.opened_slots = {f.open(3, {.max_tokens = 48, .temperature = 0})},
                                 .chunks = {f.prompt_chunk(0, 100, {3})}});
  std::vector<TokenId> tokens;
  for (int32_t position = 100;; ++position) {
    REQUIRE(output.error == "");
    REQUIRE(output.sampled.size() == 1);
    const Sampled& sampled = output.sampled[0];
    CHECK(sampled.position == position);
    CHECK(sampled.seq == 7);
    CHECK(sampled.slot == 3);
    tokens.push_back(sampled.token);
    if (sampled.finish != FinishReason::kNone) {
      CHECK(sampled.finish == FinishReason::kLength);
      break;
    }
    output = f.execute({.chunks = {f.decode_chunk(position, 3)}});
  }
  CHECK(tokens == f.reference.greedy);
}

TEST_CASE("a chunk of a slot that has ended is skipped; the others run") {
  Fixture f;
  const TokenId first = f.reference.greedy[0];
  StepOutput output = f.execute(
      {.opened_slots =
           {f.open(0, {.max_tokens = 9, .temperature = 0, .eos_ids = {first}}),
            f.open(1, {.max_tokens = 9, .temperature = 0, .stop_ids = {first}}),
            f.open(2, {.max_tokens = 9, .temperature = 0, .ignore_eos = true, .eos_ids = {first}})},
       .chunks = {f.prompt_chunk(0, 100, {0, 1, 2})}});
  REQUIRE(output.sampled.size() == 3);
  CHECK(output.sampled[0].finish == FinishReason::kStop);
  CHECK(!output.sampled[0].stop_id);
  CHECK(output.sampled[1].stop_id == first);
  CHECK(output.sampled[2].finish == FinishReason::kNone);
  output = f.execute(
      {.chunks = {f.decode_chunk(100, 0), f.decode_chunk(100, 2), f.decode_chunk(100, 1)}});
  REQUIRE(output.sampled.size() == 1);
  CHECK(output.sampled[0].slot == 2);
  CHECK(output.sampled[0].token == f.reference.greedy[1]);
  // The slots can be closed and opened again.
  output = f.execute({.closed_slots = {0, 1},
                      .opened_slots = {f.open(0, {.max_tokens = 1, .temperature = 0})},
                      .chunks = {f.prompt_chunk(99, 100, {0})}});
  REQUIRE(output.sampled.size() == 1);
  CHECK(output.sampled[0].token == first);
}

TEST_CASE("several choices sampled from one chunk equal each sampled alone") {
  Fixture f;
  const SamplingSpec spec{.seed = 5, .n = 4, .max_tokens = 4, .temperature = 2.0F};
  StepInput input{.chunks = {f.prompt_chunk(0, 100, {10, 11, 12, 13})}};
  for (int32_t choice = 0; choice < 4; ++choice)
    input.opened_slots.push_back(f.open(10 + choice, spec, choice));
  const StepOutput together = f.execute(input);
  REQUIRE(together.sampled.size() == 4);
  for (int32_t choice = 0; choice < 4; ++choice) {
    const StepOutput alone = f.execute({.closed_slots = {10 + choice},
                                        .opened_slots = {f.open(10 + choice, spec, choice)},
                                        .chunks = {f.prompt_chunk(50, 100, {10 + choice})}});
    REQUIRE(alone.sampled.size() == 1);
    CHECK(alone.sampled[0].token == together.sampled[static_cast<size_t>(choice)].token);
    CHECK(alone.sampled[0].choice == choice);
  }
  bool differ = false;
  for (const Sampled& sampled : together.sampled)
    differ |= sampled.token != together.sampled[0].token;
  CHECK(differ);
}

TEST_CASE("pages copied before a step carry the sequence on") {
  Fixture f;
  f.execute({.chunks = {f.prompt_chunk(0, 99)}});
  Chunk original = f.prompt_chunk(99, 100);
  original.all_logits = true;
  const std::vector<float> want = f.execute({.chunks = {original}}).logits;

  const std::vector<int32_t>& from = original.block_tables[0];
  const std::vector<int32_t> to = scattered_tables(f.model, 200, 0, 1, 2)[0];
  StepInput input{.chunks = {original}};
  for (size_t i = 0; i < 7; ++i)
    input.page_copies.push_back({.src_page = from[i], .dst_page = to[i]});
  input.chunks[0].block_tables = {to};
  CHECK(f.execute(input).logits == want);
}

TEST_CASE("prompt log-probabilities cover every token but the first, across chunks") {
  Fixture f;
  Chunk head = f.prompt_chunk(0, 40);
  head.prompt_logprobs = 2;
  head.next_token = f.reference.input_ids[40];
  Chunk tail = f.prompt_chunk(40, 100);
  tail.prompt_logprobs = 2;
  tail.all_logits = true;
  const StepOutput first = f.execute({.chunks = {head}});
  const StepOutput second = f.execute({.chunks = {tail}});
  REQUIRE(first.prompt_logprobs.size() == 1);
  REQUIRE(second.prompt_logprobs.size() == 1);
  CHECK(first.prompt_logprobs[0].first_position == 1);
  CHECK(first.prompt_logprobs[0].tokens.size() == 40);
  CHECK(first.prompt_logprobs[0].tokens.back().token == f.reference.input_ids[40]);
  CHECK(second.prompt_logprobs[0].first_position == 41);
  REQUIRE(second.prompt_logprobs[0].tokens.size() == 59);
  for (size_t i = 0; i < 59; ++i) {
    const LogSoftmax softmax(second.logits.data() + i * 256, 256);
    const TokenId token = f.reference.input_ids[41 + i];
    CHECK(second.prompt_logprobs[0].tokens[i] == TokenLogprob{token, softmax.logprob(token)});
    CHECK(second.prompt_logprobs[0].top[i] == softmax.top(2));
  }
}

TEST_CASE("a sampled token's log-probability is of the raw row") {
  Fixture f;
  Chunk chunk = f.prompt_chunk(0, 100, {0});
  chunk.all_logits = true;
  const StepOutput output =
      f.execute({.opened_slots = {f.open(
                     0, {.seed = 1, .temperature = 0.3F, .presence_penalty = 1, .logprobs = 3})},
                 .chunks = {chunk}});
  REQUIRE(output.sampled.size() == 1);
  const LogSoftmax softmax(output.logits.data() + 99 * 256, 256);
  CHECK(output.sampled[0].logprob == softmax.logprob(output.sampled[0].token));
  CHECK(output.sampled[0].top == softmax.top(3));
}

TEST_CASE("the sink is told of every layer in order, also in a step that only pushes") {
  Fixture f;
  f.execute({.step = 5, .chunks = {f.prompt_chunk(0, 20)}});
  f.execute({.step = 6, .pushes = {{.src_page = 1, .dst_page = 2}}});
  CHECK(f.sink.calls ==
        std::vector<std::pair<uint64_t, int32_t>>{{5, 0}, {5, 1}, {5, 2}, {6, 0}, {6, 1}, {6, 2}});
}

TEST_CASE("kv_compat_id depends on model, page size and KV dtype, not on the rest") {
  const LoadedModel a = load_golden("llama", golden_options(16));
  EngineOptions other = golden_options(16);
  other.threads = 1;
  other.kv_bytes *= 2;
  CHECK(load_golden("llama", other).facts.kv_compat_id == a.facts.kv_compat_id);
  CHECK(a.facts.kv_compat_id.size() == 64);
  CHECK(load_golden("llama", golden_options(64)).facts.kv_compat_id != a.facts.kv_compat_id);
  CHECK(load_golden("llama-yarn", golden_options(16)).facts.kv_compat_id != a.facts.kv_compat_id);
  other.kv_dtype = "f16";
  CHECK(load_golden("llama", other).facts.kv_compat_id != a.facts.kv_compat_id);
}
