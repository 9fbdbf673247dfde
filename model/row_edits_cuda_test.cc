// The GPU changes rows as ChoiceState::adjust does, to the bit, draws what Sampler::choose draws
// from them, and lists the likeliest tokens as LogSoftmax does; over steps whose last tokens the
// host does not know yet.
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>

#include "kernels/cuda/testing.h"
#include "kernels/sampling/sampling_cuda.h"
#include "model/count_tables.h"
#include "model/sampler.h"
#include "model/step_edits.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr uint64_t kSeed = 20261130;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int32_t kContext = 4000;

using Random = std::mt19937_64;
int32_t below(Random& random, int32_t end) {
  return static_cast<int32_t>(random() % static_cast<uint64_t>(end));
}

std::vector<TokenId> random_ids(Random& random, int32_t count, int32_t end) {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < count; ++i) ids.push_back(below(random, end));
  return ids;
}

SamplingSpec random_spec(Random& random, int32_t vocab) {
  SamplingSpec spec{.seed = random(), .max_tokens = 3000, .ignore_eos = true};
  const auto one_in = [&](int32_t n) { return below(random, n) == 0; };
  spec.temperature = one_in(2) ? 0.0F : 0.8F;
  if (one_in(3)) spec.top_k = 1 + below(random, 50);
  if (one_in(3)) spec.top_p = 0.9F;
  spec.logprobs = std::array{-1, 0, 5, 20}[static_cast<size_t>(below(random, 4))];
  if (one_in(3)) spec.allowed_token_ids = random_ids(random, 1 + below(random, vocab), vocab);
  if (one_in(3)) {
    spec.min_tokens = 3;
    spec.eos_ids = random_ids(random, 2, vocab);
  }
  for (int32_t i = one_in(3) ? below(random, 300) : 0; i > 0; --i)
    spec.logit_bias.emplace_back(below(random, vocab), static_cast<float>(i % 11) - 5.0F);
  for (int32_t i = one_in(3) ? 40 : 0; i > 0; --i)
    spec.bad_words.push_back(random_ids(random, 1 + below(random, 3), std::min(vocab, 8)));
  if (one_in(2)) {
    spec.repetition_penalty = one_in(2) ? 1.7F : 1.0F;
    spec.frequency_penalty = 0.35F * static_cast<float>(below(random, 4) - 1);
    spec.presence_penalty = 0.45F * static_cast<float>(below(random, 3));
  }
  return spec;
}

// A choice, by what the host knows of it and by all its tokens.
struct Twin {
  SampleRow sample;
  std::shared_ptr<ChoiceState> all;
};

Twin make_twin(int32_t slot, const SamplingSpec& spec, const std::vector<TokenId>& prompt,
               int32_t vocab) {
  const SlotOpen open{.slot = slot,
                      .spec = spec,
                      .choice = slot,
                      .prompt_len = static_cast<int32_t>(prompt.size()),
                      .tokens = prompt};
  return {{slot, std::make_shared<ChoiceState>(open, kContext, vocab)},
          std::make_shared<ChoiceState>(open, kContext, vocab)};
}

struct Drawn {
  std::vector<SampleResult> results;
  std::vector<SampleResult> tops;          // [samples, kTopTokensMax]
  std::vector<std::vector<float>> edited;  // [samples], empty: not changed
};

// One step: sample i is drawn from row rows_of[i].
Drawn sample_on_gpu(const std::vector<Twin>& twins, const std::vector<int32_t>& rows_of,
                    const std::vector<std::vector<float>>& rows, CountTables& tables,
                    int32_t step) {
  const auto vocab = static_cast<int32_t>(rows[0].size());
  const auto count = static_cast<int32_t>(twins.size());
  std::vector<Chunk> chunks(twins.size());
  std::vector<LogitRow> logit_rows;
  std::vector<SampleRow> samples;
  std::vector<SampleParams> params;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < twins.size(); ++i) {
    const auto number = static_cast<int32_t>(i);
    const int32_t position = twins[i].all->next_position();
    chunks[i].first_pos = position - 1;
    logit_rows.push_back(
        {.row = number, .chunk = &chunks[i], .first_sample = number, .num_samples = 1});
    samples.push_back(twins[i].sample);
    params.push_back(Sampler::params(*twins[i].sample.choice, rows_of[i], position));
    tokens.push_back(twins[i].all->last_token());
  }
  StepEdits edits;
  edits.gather(logit_rows, samples);
  tables.begin_step(step % kStepsInFlight, {});
  for (StepEdits::Row& row : edits.rows())
    if (row.choice->has_penalties()) tables.use(&row, nullptr);

  std::vector<float> logits;
  for (const std::vector<float>& row : rows) logits.insert(logits.end(), row.begin(), row.end());
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<int32_t> device_tokens(tokens);
  const DeviceArray<float> edited(static_cast<size_t>(count) * static_cast<size_t>(vocab));
  std::vector<std::byte> staged(static_cast<size_t>(StepEdits::bytes_for(count, vocab)));
  REQUIRE(edits.bytes() <= static_cast<int64_t>(staged.size()));
  const DeviceArray<std::byte> device_staged(staged.size());
  edits.write({.host = staged.data(),
               .device = device_staged.data(),
               .params = params.data(),
               .tokens = device_tokens.data(),
               .edited = edited.data(),
               .vocab_size = vocab});
  cuda_check(cudaMemcpy(device_staged.data(), staged.data(), staged.size(), cudaMemcpyDefault),
             "copy");
  const DeviceArray<SampleParams> device_params(params);
  const DeviceArray<SampleResult> results(twins.size());
  const DeviceArray<SampleResult> tops(twins.size() * kTopTokensMax);
  const DeviceArray<std::byte> scratch(static_cast<size_t>(sample_scratch_bytes(count)));
  sample_cuda({.logits = device_logits.data(),
               .vocab_size = vocab,
               .params = device_params.data(),
               .num_samples = count,
               .scratch = scratch.data(),
               .results = results.data(),
               .tops = tops.data()},
              nullptr);
  Drawn drawn{results.host(), tops.host(), std::vector<std::vector<float>>(twins.size())};
  const std::vector<float> changed = edited.host();
  for (size_t i = 0; i < edits.rows().size(); ++i) {
    const auto begin = changed.begin() + static_cast<std::ptrdiff_t>(i) * vocab;
    drawn.edited[static_cast<size_t>(edits.rows()[i].sample)].assign(begin, begin + vocab);
  }
  return drawn;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
  return a.size() == b.size();
}

// The CPU's token for sample i, after comparing everything with what the CPU makes of the row.
TokenId check_sample(const Twin& twin, const std::vector<float>& row, const Drawn& drawn,
                     size_t i) {
  const auto vocab = static_cast<int32_t>(row.size());
  const ChoiceState& choice = *twin.all;
  CAPTURE(i);
  CAPTURE(vocab);
  if (choice.adjusts()) {
    std::vector<float> want = row;
    choice.adjust(want.data());
    CHECK(same(drawn.edited[i], want));
  }
  const TokenId token = Sampler(vocab).choose(row.data(), choice);
  CHECK(drawn.results[i].token == token);
  const int32_t num_top = choice.spec().logprobs;
  if (token < 0 || num_top < 0) return token;
  const LogSoftmax softmax(row.data(), vocab);
  CHECK(std::isnan(drawn.results[i].logprob) == !softmax.valid());
  if (!softmax.valid()) return token;
  CHECK(drawn.results[i].logprob == doctest::Approx(softmax.logprob(token)).epsilon(1e-5));
  const std::vector<TokenLogprob> top = softmax.top(num_top);
  for (size_t k = 0; k < top.size(); ++k) {
    const SampleResult& got = drawn.tops[i * kTopTokensMax + k];
    CAPTURE(k);
    CHECK(got.token == top[k].token);
    CHECK(got.logprob == doctest::Approx(top[k].logprob).epsilon(1e-5));
    if (got.token == token) CHECK(got.logprob == drawn.results[i].logprob);
  }
  return token;
}

// Some rows have many equal logits, some hold what is not finite.
std::vector<float> random_row(Random& random, int32_t vocab) {
  std::normal_distribution<float> normal(0, 2);
  const bool coarse = below(random, 2) == 0;
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& logit : row) {
    logit = normal(random);
    if (coarse) logit = std::round(logit * 4) / 4;
  }
  const auto put = [&](float value) { row[static_cast<size_t>(below(random, vocab))] = value; };
  const int32_t kind = below(random, 12);
  for (int32_t n = kind == 0 ? vocab / 2 : 0; n > 0; --n) put(-kInfinity);
  if (kind == 1) put(NAN);
  if (kind == 2) put(kInfinity);
  if (kind == 3) row.assign(row.size(), -kInfinity);
  if (kind == 4) row.assign(row.size(), NAN);
  return row;
}

}  // namespace

TEST_CASE("all kinds of changed rows in one batch, step after step, are the CPU's") {
  if (no_gpu()) return;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Random random(kSeed);
  for (const int32_t vocab : {10, 257, 1000, 49152, 128256}) {
    constexpr int32_t kChoices = 32;
    CountTables tables(kChoices, vocab);
    std::vector<Twin> twins;
    std::vector<int32_t> rows_of;
    for (int32_t i = 0; i < kChoices; ++i) {
      twins.push_back(make_twin(i, random_spec(random, vocab),
                                random_ids(random, 1 + below(random, 100), vocab), vocab));
      rows_of.push_back(i);
    }
    for (int32_t step = 0; step < 8; ++step) {
      std::vector<std::vector<float>> rows;
      for (int32_t i = 0; i < kChoices; ++i) rows.push_back(random_row(random, vocab));
      const Drawn drawn = sample_on_gpu(twins, rows_of, rows, tables, step);
      CAPTURE(step);
      for (size_t i = 0; i < twins.size(); ++i) {
        ChoiceState& host = *twins[i].sample.choice;
        const TokenId token = check_sample(twins[i], rows[i], drawn, i);
        if (host.next_position() < twins[i].all->next_position())
          host.accept(twins[i].all->last_token());
        // Few tokens, again and again, so that counts grow and bad words are completed.
        twins[i].all->accept(step % 2 == 0 || token < 0 ? below(random, std::min(vocab, 8))
                                                        : token);
        if (below(random, 2) == 0) host.accept(twins[i].all->last_token());
      }
    }
  }
}

TEST_CASE("choices of one row are changed apart from each other") {
  if (no_gpu()) return;
  Random random(kSeed);
  constexpr int32_t kVocab = 5000;
  const std::vector<TokenId> prompt = random_ids(random, 50, kVocab);
  std::vector<Twin> twins;
  std::vector<std::vector<float>> rows = {random_row(random, kVocab)};
  for (int32_t i = 0; i < 12; ++i) {
    SamplingSpec spec = random_spec(random, kVocab);
    if (i % 4 == 0) spec = {.temperature = 0, .logprobs = 3};
    twins.push_back(make_twin(i, spec, prompt, kVocab));
  }
  CountTables tables(12, kVocab);
  const Drawn drawn = sample_on_gpu(twins, std::vector<int32_t>(12, 0), rows, tables, 0);
  for (size_t i = 0; i < twins.size(); ++i) check_sample(twins[i], rows[0], drawn, i);
}

TEST_CASE(
    "a mask that allows nothing, or a penalty without bounds, gives the raw row's likeliest") {
  if (no_gpu()) return;
  constexpr int32_t kVocab = 300;
  std::vector<float> row(kVocab, 1.0F);
  row[123] = 2.0F;
  std::vector<float> broken = row;
  broken[5] = kInfinity;
  const SamplingSpec nothing{.allowed_token_ids = {kVocab + 1}};
  SamplingSpec all_away{.min_tokens = 1};
  for (TokenId id = 0; id < kVocab; ++id) all_away.stop_ids.push_back(id);
  const SamplingSpec infinite{.repetition_penalty = 0};
  std::vector<Twin> twins;
  std::vector<std::vector<float>> rows;
  for (const SamplingSpec& spec : {nothing, all_away, infinite}) {
    for (const std::vector<float>& raw : {row, broken}) {
      twins.push_back(make_twin(static_cast<int32_t>(twins.size()), spec, {0, 7}, kVocab));
      rows.push_back(raw);
    }
  }
  CountTables tables(6, kVocab);
  const Drawn drawn = sample_on_gpu(twins, {0, 1, 2, 3, 4, 5}, rows, tables, 0);
  for (size_t i = 0; i < twins.size(); ++i) {
    CHECK(check_sample(twins[i], rows[i], drawn, i) == (i % 2 == 0 ? 123 : -1));
  }
}

TEST_CASE("tables whose tokens need more room than there is are built one after the other") {
  if (no_gpu()) return;
  Random random(kSeed);
  constexpr int32_t kVocab = 1 << 16, kChoices = 5;
  std::vector<TokenId> prompt(40000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i);
  std::vector<Twin> twins;
  std::vector<std::vector<float>> rows;
  for (int32_t i = 0; i < kChoices; ++i) {
    twins.push_back(make_twin(i, {.temperature = 0, .repetition_penalty = 1.2F}, prompt, kVocab));
    rows.push_back(random_row(random, kVocab));
  }
  CountTables tables(kChoices, kVocab);
  const Drawn drawn = sample_on_gpu(twins, {0, 1, 2, 3, 4}, rows, tables, 0);
  for (size_t i = 0; i < twins.size(); ++i) check_sample(twins[i], rows[i], drawn, i);
}
