#include "model/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "model/random.h"
#include "model/row_reader.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kContext = 1000;

// `vocab_size`: of the rows that it is used with.
ChoiceState make_state(SamplingSpec spec, std::vector<TokenId> tokens = {0}, int32_t prompt_len = 1,
                       int32_t choice = 0, int32_t vocab_size = kContext) {
  return ChoiceState({.spec = std::move(spec),
                      .choice = choice,
                      .prompt_len = prompt_len,
                      .tokens = std::move(tokens)},
                     kContext, vocab_size);
}

// How often each token is drawn in `draws` choices of one request.
std::map<TokenId, int> draw_many(const SamplingSpec& spec, const std::vector<float>& logits,
                                 int draws) {
  Sampler sampler(static_cast<int32_t>(logits.size()));
  std::map<TokenId, int> counts;
  for (int i = 0; i < draws; ++i)
    ++counts[sampler.choose(logits.data(), make_state(spec, {0}, 1, i))];
  return counts;
}

std::vector<float> adjusted(std::vector<float> logits, const SamplingSpec& spec,
                            const std::vector<TokenId>& tokens = {0}, int32_t prompt_len = 1) {
  make_state(spec, tokens, prompt_len, 0, static_cast<int32_t>(logits.size()))
      .adjust(logits.data());
  return logits;
}

std::vector<float> log_of(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

}  // namespace

TEST_CASE("Philox 4x32-10 gives the published test vectors") {
  using Four = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) ==
        Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("uniform numbers differ by seed, choice and position and fill [0, 1)") {
  CHECK(uniform_at(1, 2, 3) == uniform_at(1, 2, 3));
  CHECK(uniform_at(1, 2, 3) != uniform_at(1, 2, 4));
  CHECK(uniform_at(1, 2, 3) != uniform_at(1, 3, 3));
  CHECK(uniform_at(1, 2, 3) != uniform_at(1ULL << 40, 2, 3));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = uniform_at(7, 0, i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
  }
  CHECK(sum / 10000 == doctest::Approx(0.5).epsilon(0.02));
}

TEST_CASE("a penalty that makes logits infinite falls back to the raw row; a broken row is told") {
  Sampler sampler(3);
  SamplingSpec spec;
  spec.repetition_penalty = 0;  // 1e-300 as a float
  const std::vector<float> logits = {1.0F, 2.0F, -1.0F};
  CHECK(sampler.choose(logits.data(), make_state(spec, {0})) == 1);
  const std::vector<float> broken = {1.0F, kInfinity, -1.0F};
  CHECK(sampler.choose(broken.data(), make_state(spec, {0})) == -1);
}

TEST_CASE("arg_max takes the lowest id on ties, skips NaN, sees every element") {
  for (const int32_t size : {1, 15, 16, 17, 50}) {
    for (int32_t at = 0; at < size; ++at) {
      std::vector<float> logits(static_cast<size_t>(size), -1.0F);
      logits[static_cast<size_t>(at)] = 2.0F;
      logits.back() = 2.0F;
      CHECK(arg_max(logits.data(), size) == at);
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits{nan, 1, nan, 3};
  CHECK(arg_max(logits.data(), 4) == 3);
  logits = {nan, -kInfinity};
  CHECK(arg_max(logits.data(), 2) == -1);
}

TEST_CASE("temperature sampling follows the distribution") {
  const std::vector<float> logits = log_of({0.5, 0.3, 0.15, 0.05});
  const auto counts = draw_many({.seed = 11}, logits, 40000);
  CHECK(counts.at(0) / 40000.0 == doctest::Approx(0.5).epsilon(0.03));
  CHECK(counts.at(1) / 40000.0 == doctest::Approx(0.3).epsilon(0.03));
  CHECK(counts.at(2) / 40000.0 == doctest::Approx(0.15).epsilon(0.05));
  CHECK(counts.at(3) / 40000.0 == doctest::Approx(0.05).epsilon(0.1));
  // At temperature 0.5 probabilities are squared: 0.25 / (0.25 + 0.09 + 0.0225 + 0.0025).
  const auto cold = draw_many({.seed = 12, .temperature = 0.5F}, logits, 40000);
  CHECK(cold.at(0) / 40000.0 == doctest::Approx(0.6849).epsilon(0.03));
  CHECK(draw_many({.seed = 13, .temperature = 0}, logits, 100).at(0) == 100);
}

TEST_CASE("top_k, top_p and min_p keep the right tokens, ties to the lowest id") {
  const std::vector<float> logits = log_of({0.1, 0.4, 0.1, 0.3, 0.1});
  const auto kept = [&](const SamplingSpec& spec) {
    std::vector<TokenId> tokens;
    for (const auto& [token, count] : draw_many(spec, logits, 3000)) tokens.push_back(token);
    return tokens;
  };
  CHECK(kept({.top_k = 1}) == std::vector<TokenId>{1});
  CHECK(kept({.top_k = 2}) == std::vector<TokenId>{1, 3});
  CHECK(kept({.top_k = 3}) == std::vector<TokenId>{0, 1, 3});
  CHECK(kept({.top_k = 99}) == std::vector<TokenId>{0, 1, 2, 3, 4});
  CHECK(kept({.top_p = 0.01F}) == std::vector<TokenId>{1});
  CHECK(kept({.top_p = 0.69F}) == std::vector<TokenId>{1, 3});
  CHECK(kept({.top_p = 0.75F}) == std::vector<TokenId>{0, 1, 3});
  CHECK(kept({.min_p = 0.5F}) == std::vector<TokenId>{1, 3});
  CHECK(kept({.min_p = 0.2F}) == std::vector<TokenId>{0, 1, 2, 3, 4});
  // top_p counts within what top_k left: 0.4 of 0.7 is 0.57.
  CHECK(kept({.top_k = 2, .top_p = 0.5F}) == std::vector<TokenId>{1});
}

TEST_CASE("top_p over a large flat vocabulary sorts as far as it must") {
  std::vector<float> logits(20000, 0.0F);
  const auto counts = draw_many({.seed = 3, .top_p = 0.5F}, logits, 2000);
  for (const auto& [token, count] : counts) CHECK(token < 10000);  // ties: the lowest half
  CHECK(counts.rbegin()->first > 9000);
}

TEST_CASE("penalties: repetition over all tokens, presence and frequency over generated ones") {
  const SamplingSpec spec{
      .presence_penalty = 0.5F, .frequency_penalty = 0.25F, .repetition_penalty = 2.0F};
  // Prompt 0 1; generated 2 3 3.
  CHECK(adjusted({4, -4, 4, 4, 4}, spec, {0, 1, 2, 3, 3}, 2) ==
        std::vector<float>{2, -8, 2 - 0.75F, 2 - 1.0F, 4});
}

TEST_CASE("bias, allowed ids and bad words change the row; ids out of range do nothing") {
  CHECK(adjusted({0, 0, 0}, {.logit_bias = {{1, 3.0F}, {-1, 1.0F}, {9, 1.0F}}}) ==
        std::vector<float>{0, 3, 0});
  CHECK(adjusted({0, 0, 0}, {.logit_bias = {{2, 3.0F}, {1, 1.0F}, {2, -1.0F}}}) ==
        std::vector<float>{0, 1, 2});  // named twice: the sum
  CHECK(adjusted({1, 2, 3}, {.allowed_token_ids = {2, 0, 77}}) ==
        std::vector<float>{1, -kInfinity, 3});
  const SamplingSpec bad{.bad_words = {{0}, {4, 5, 1}, {5, 2}}};
  CHECK(adjusted({1, 2, 3}, bad, {4, 5}, 2) ==  // prompt tokens do not count
        std::vector<float>{-kInfinity, 2, 3});
  CHECK(adjusted({1, 2, 3}, bad, {7, 4, 5}, 1) ==
        std::vector<float>{-kInfinity, -kInfinity, -kInfinity});
}

TEST_CASE("if nothing may be drawn, the raw row's likeliest is") {
  Sampler sampler(3);
  const std::vector<float> logits{1, 5, 2};
  CHECK(sampler.choose(logits.data(), make_state({.allowed_token_ids = {77}}, {0}, 1, 0, 3)) == 1);
  const std::vector<float> broken{NAN, NAN, NAN};
  CHECK(sampler.choose(broken.data(), make_state({})) == -1);
}

TEST_CASE("min_tokens keeps EOS and stop ids away, then they end the choice") {
  const SamplingSpec spec{
      .max_tokens = 9, .min_tokens = 2, .temperature = 0, .eos_ids = {1}, .stop_ids = {2}};
  Sampler sampler(4);
  const std::vector<float> logits{0, 9, 8, 7};
  ChoiceState state = make_state(spec);
  for (int i = 0; i < 2; ++i) {
    CHECK(sampler.choose(logits.data(), state) == 3);
    CHECK(state.accept(3).finish == FinishReason::kNone);
  }
  CHECK(sampler.choose(logits.data(), state) == 1);
  const ChoiceState::Ending ending = state.accept(1);
  CHECK(ending.finish == FinishReason::kStop);
  CHECK(!ending.stop_id);
  CHECK(state.ended());
}

TEST_CASE(
    "a choice ends by stop id, max_tokens or the context's end; ignore_eos ignores EOS only") {
  ChoiceState stop = make_state({.max_tokens = 5, .stop_ids = {7}});
  CHECK(stop.accept(7).stop_id == 7);
  ChoiceState length = make_state({.max_tokens = 2, .ignore_eos = true, .eos_ids = {1}});
  CHECK(length.accept(1).finish == FinishReason::kNone);
  CHECK(length.accept(1).finish == FinishReason::kLength);
  ChoiceState context = make_state({.max_tokens = 99}, std::vector<TokenId>(kContext - 1, 0), 1);
  CHECK(context.accept(5).finish == FinishReason::kLength);
  // A replay counts what has been generated before.
  ChoiceState replay = make_state({.max_tokens = 3}, {0, 4, 5}, 1);
  CHECK(replay.accept(6).finish == FinishReason::kLength);
}

TEST_CASE("a state rebuilt from its tokens draws what the old one would have drawn") {
  const SamplingSpec spec{.seed = 99,
                          .max_tokens = 500,
                          .top_k = 20,
                          .presence_penalty = 0.3F,
                          .repetition_penalty = 1.1F};
  std::vector<float> logits(64);
  Sampler sampler(64);
  std::vector<TokenId> tokens{5, 6};
  ChoiceState state = make_state(spec, tokens, 2, 3);
  for (int step = 0; step < 200; ++step) {
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(4 * uniform_at(1, step, static_cast<int32_t>(i)));
    }
    const TokenId token = sampler.choose(logits.data(), state);
    REQUIRE(token == sampler.choose(logits.data(), make_state(spec, tokens, 2, 3)));
    state.accept(token);
    tokens.push_back(token);
  }
}

TEST_CASE("log-probabilities are of the raw row, with a floor instead of minus infinity") {
  const std::vector<float> logits = log_of({0.5, 0.25, 0.25, 1e-30});
  std::vector<float> row = logits;
  row.push_back(-kInfinity);
  const LogSoftmax softmax(row.data(), 5);
  REQUIRE(softmax.valid());
  CHECK(softmax.logprob(0) == doctest::Approx(std::log(0.5)));
  CHECK(softmax.logprob(4) == -9999.0F);
  const std::vector<TokenLogprob> top = softmax.top(3);
  REQUIRE(top.size() == 3);
  CHECK(top[0].token == 0);
  CHECK(top[1].token == 1);  // ties: lowest id first
  CHECK(top[2].token == 2);
  CHECK(top[1].logprob == softmax.logprob(1));  // the identical float
  CHECK(softmax.top(99).size() == 5);
  CHECK(softmax.top(0).empty());
  row[2] = NAN;
  CHECK(!LogSoftmax(row.data(), 5).valid());
}

TEST_CASE("a token drawn on a GPU: its top, and NaN as its log-probability tells a broken model") {
  const Chunk chunk;
  const LogitRow row{.chunk = &chunk, .num_samples = 1};
  const RowReader reader(kContext);
  const auto accept = [&](int32_t logprobs, SampleResult drawn) {
    const SampleRow sample{
        0, std::make_shared<ChoiceState>(make_state({.max_tokens = 9, .logprobs = logprobs}))};
    const std::vector<SampleResult> top = {{7, -0.5F}, {8, -1.0F}, {9, -2.0F}};
    StepOutput output;
    reader.accept(row, sample, drawn, top.data(), &output);
    return output;
  };
  const StepOutput two = accept(2, {8, -1.0F});
  REQUIRE(two.sampled.size() == 1);
  CHECK(two.sampled[0].token == 8);
  CHECK(two.sampled[0].logprob == -1.0F);
  CHECK(two.sampled[0].top == std::vector<TokenLogprob>{{7, -0.5F}, {8, -1.0F}});
  CHECK(accept(0, {8, -1.0F}).sampled.at(0).top.empty());
  CHECK(accept(-1, {8, NAN}).error.empty());
  CHECK(accept(0, {8, NAN}).error != "");
  CHECK(accept(-1, {-1, 0}).error != "");
}
