// What is written down for the sampling kernel does to a row what ChoiceState::adjust does, also
// when a choice's last token is not known yet. Host arithmetic: the "device" is host memory, and
// apply() stands for the kernel.
#include "model/step_edits.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>

#include "model/count_places.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr uint64_t kSeed = 20261130;
constexpr int32_t kVocab = 100;  // the mask's last word is not full
constexpr int32_t kContext = 1000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Random = std::mt19937_64;
int32_t below(Random& random, int32_t end) {
  return static_cast<int32_t>(random() % static_cast<uint64_t>(end));
}

SamplingSpec random_spec(Random& random) {
  SamplingSpec spec{.max_tokens = 900};
  const auto ids = [&](int32_t count) {
    std::vector<TokenId> ids;
    for (int32_t i = 0; i < count; ++i) ids.push_back(below(random, kVocab + 3) - 1);
    return ids;
  };
  if (below(random, 3) == 0) spec.allowed_token_ids = ids(1 + below(random, 60));
  for (int32_t i = below(random, 3) * 3; i > 0; --i) {
    // Of few tokens, so that words are completed.
    std::vector<TokenId> word(static_cast<size_t>(below(random, 4)));
    for (TokenId& id : word) id = below(random, 4);
    spec.bad_words.push_back(word);
  }
  if (below(random, 2) == 0) {
    spec.min_tokens = below(random, 12);
    spec.eos_ids = ids(2);
    spec.stop_ids = ids(3);
    spec.ignore_eos = true;
  }
  for (int32_t i = below(random, 3) * 5; i > 0; --i)
    spec.logit_bias.emplace_back(below(random, kVocab + 2) - 1, 0.7F * static_cast<float>(i));
  if (below(random, 2) == 0) {
    spec.repetition_penalty = below(random, 2) == 0 ? 1.3F : 0.7F;
    spec.frequency_penalty = 0.3F * static_cast<float>(below(random, 3) - 1);
    spec.presence_penalty = 0.2F * static_cast<float>(below(random, 3));
  }
  return spec;
}

std::vector<float> random_row(Random& random) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(kVocab);
  for (float& logit : row) logit = normal(random);
  row[static_cast<size_t>(below(random, kVocab))] = NAN;
  row[static_cast<size_t>(below(random, kVocab))] = -kInfinity;
  return row;
}

// The kernel, one token after the other.
std::vector<float> apply(const RowEdits& edits, std::vector<float> row) {
  const int32_t last = *edits.last_token;
  for (int32_t t = 0; edits.allowed != nullptr && t < kVocab; ++t)
    if ((edits.allowed[t / 32] >> (t % 32) & 1) == 0) row[static_cast<size_t>(t)] = -kInfinity;
  for (int32_t i = 0; i < edits.num_bans; ++i) {
    const TokenBan ban = edits.bans[i];
    if (ban.after < 0 || ban.after == last) row[static_cast<size_t>(ban.token)] = -kInfinity;
  }
  for (int32_t i = 0; i < edits.num_biases; ++i)
    row[static_cast<size_t>(edits.biases[i].token)] += edits.biases[i].bias;
  if (edits.counts == nullptr) return row;
  if (edits.counts_last != 0) edits.counts[last] = std::max(edits.counts[last], 1) + 1;
  for (int32_t t = 0; t < kVocab; ++t) {
    const int32_t seen = edits.counts[t];
    if (seen == 0) continue;
    float& logit = row[static_cast<size_t>(t)];
    logit = logit > 0 ? logit / edits.repetition_penalty : logit * edits.repetition_penalty;
    logit -= edits.frequency_penalty * static_cast<float>(seen - 1);
    if (seen > 1) logit -= edits.presence_penalty;
  }
  return row;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
  return a.size() == b.size();
}

// A choice, by what the host knows of it and by all its tokens.
struct Twin {
  SampleRow sample;
  std::shared_ptr<ChoiceState> all;
};

Twin make_twin(Random& random, int32_t slot) {
  SlotOpen open{.slot = slot, .spec = random_spec(random), .prompt_len = 1 + below(random, 20)};
  const int32_t generated = below(random, 3);
  for (int32_t i = 0; i < open.prompt_len + generated; ++i)
    open.tokens.push_back(below(random, kVocab));
  return {{slot, std::make_shared<ChoiceState>(open, kContext, kVocab)},
          std::make_shared<ChoiceState>(open, kContext, kVocab)};
}

// A step's arrays in memory that is both host and "device".
struct Device {
  explicit Device(size_t rows)
      : staged(static_cast<size_t>(StepEdits::bytes_for(static_cast<int32_t>(rows), kVocab))),
        params(rows),
        tokens(rows),
        edited(rows * kVocab) {}
  void write(const StepEdits& edits) {
    REQUIRE(edits.bytes() <= static_cast<int64_t>(staged.size()));
    edits.write({.host = staged.data(),
                 .device = staged.data(),
                 .params = params.data(),
                 .tokens = tokens.data(),
                 .edited = edited.data(),
                 .vocab_size = kVocab});
  }
  std::vector<std::byte> staged;
  std::vector<SampleParams> params;
  std::vector<int32_t> tokens;
  std::vector<float> edited;
};

// Steps over some of the choices each, so that tables run short and change hands; the host learns
// of a choice's last token at once or a step later.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : random_(seed), places_(kTables) {
    for (int32_t slot = 0; slot < kChoices; ++slot) twins_.push_back(make_twin(random_, slot));
  }

  void step() {
    std::vector<size_t> chosen;
    const auto first = static_cast<size_t>(below(random_, kChoices));
    for (size_t i = 0; i < twins_.size() && chosen.size() < kTables; ++i)
      if (below(random_, 3) > 0) chosen.push_back((first + i) % twins_.size());
    Device device(chosen.size());
    prepare(chosen, device);
    for (size_t r = 0; r < chosen.size(); ++r) {
      check(twins_[chosen[r]], device.params[r].edits);
      advance(twins_[chosen[r]]);
    }
  }

  int changed = 0, builds = 0, conditional = 0;

 private:
  static constexpr int32_t kChoices = 24, kTables = 5;

  void prepare(const std::vector<size_t>& chosen, Device& device) {
    std::vector<Chunk> chunks(chosen.size());
    std::vector<LogitRow> rows;
    std::vector<SampleRow> samples;
    for (size_t r = 0; r < chosen.size(); ++r) {
      const Twin& twin = twins_[chosen[r]];
      chunks[r].first_pos = twin.all->next_position() - 1;
      device.tokens[r] = twin.all->last_token();
      const auto number = static_cast<int32_t>(r);
      rows.push_back(
          {.row = number, .chunk = &chunks[r], .first_sample = number, .num_samples = 1});
      samples.push_back(twin.sample);
    }
    edits_.gather(rows, samples);
    places_.begin_step();
    for (StepEdits::Row& row : edits_.rows())
      if (row.choice->has_penalties()) use_table(row);
    device.write(edits_);
  }

  void use_table(StepEdits::Row& row) {
    const CountPlaces::Use use = places_.use(row.slot, row.choice->next_position(), row.position);
    std::vector<int32_t>& table = tables_[static_cast<size_t>(use.table)];
    row.counts_last = use.add_last;
    if (use.build) {
      ++builds;
      table.assign(kVocab, 0);
      for (const auto& [token, count] : row.choice->counts())
        table[static_cast<size_t>(token)] = 1 + count;
    }
    row.counts = table.data();
  }

  void check(const Twin& twin, const RowEdits* edits) {
    const std::vector<float> raw = random_row(random_);
    std::vector<float> want = raw;
    twin.all->adjust(want.data());
    CAPTURE(twin.sample.slot);
    REQUIRE(same(edits == nullptr ? raw : apply(*edits, raw), want));
    if (edits == nullptr) return;
    ++changed;
    for (int32_t i = 0; i < edits->num_bans; ++i) conditional += edits->bans[i].after >= 0 ? 1 : 0;
  }

  void advance(Twin& twin) {
    ChoiceState& host = *twin.sample.choice;
    if (host.next_position() < twin.all->next_position()) host.accept(twin.all->last_token());
    const TokenId token = below(random_, below(random_, 2) == 0 ? 4 : kVocab);
    twin.all->accept(token);
    if (below(random_, 2) == 0) host.accept(token);
    if (!twin.all->ended()) return;
    places_.close(twin.sample.slot);
    twin = make_twin(random_, twin.sample.slot);
  }

  Random random_;
  std::vector<Twin> twins_;
  std::vector<std::vector<int32_t>> tables_ =
      std::vector<std::vector<int32_t>>(kTables, std::vector<int32_t>(kVocab, -1));
  CountPlaces places_;
  StepEdits edits_;
};

}  // namespace

TEST_CASE("rows are changed as adjust() changes them, with a token in flight and without") {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  Simulation simulation(kSeed);
  for (int step = 0; step < 800; ++step) {
    CAPTURE(step);
    simulation.step();
  }
  CHECK(simulation.changed > 1000);
  CHECK(simulation.builds > 100);
  CHECK(simulation.conditional > 100);
}

TEST_CASE(
    "choices of one row have edits of their own; one without edits and one that ended, none") {
  const auto choice = [](SamplingSpec spec) {
    return std::make_shared<ChoiceState>(
        SlotOpen{.spec = std::move(spec), .prompt_len = 1, .tokens = {0}}, kContext, kVocab);
  };
  const std::vector<SampleRow> samples = {
      {0, choice({.logit_bias = {{1, 2.0F}}})},
      {1, choice({})},
      {2, choice({.logit_bias = {{3, 4.0F}}})},
      {3, choice({.max_tokens = 1, .logit_bias = {{5, 6.0F}}})}};
  samples[3].choice->accept(9);
  const Chunk chunk;
  StepEdits edits;
  edits.gather({{.chunk = &chunk, .num_samples = 4}}, samples);
  Device device(4);
  device.write(edits);
  REQUIRE(device.params[0].edits != nullptr);
  CHECK(device.params[1].edits == nullptr);
  REQUIRE(device.params[2].edits != nullptr);
  CHECK(device.params[3].edits == nullptr);
  CHECK(device.params[0].edits->biases[0].token == 1);
  CHECK(device.params[2].edits->biases[0].token == 3);
  CHECK(device.params[0].edits->edited == device.edited.data());
  CHECK(device.params[2].edits->edited == device.edited.data() + kVocab);
}

TEST_CASE("all that the router lets through has room") {
  SamplingSpec spec{.min_tokens = 5, .allowed_token_ids = {1}};
  for (TokenId id = 0; id < 1024; ++id) {
    spec.logit_bias.emplace_back(id, 1.0F);
    spec.stop_ids.push_back(id);
    if (id < 512) spec.bad_words.push_back({id});
  }
  spec.eos_ids = {1, 2, 3, 4};
  constexpr int32_t kLarge = 128256;
  const Chunk chunk;
  const SampleRow sample = {
      0, std::make_shared<ChoiceState>(SlotOpen{.spec = spec, .prompt_len = 1, .tokens = {0}},
                                       kContext, kLarge)};
  StepEdits edits;
  edits.gather({{.chunk = &chunk, .num_samples = 3}}, {sample, sample, sample});
  CHECK(edits.bytes() > 3 * 8 * (1024 + 1024 + 512 + 4));
  CHECK(edits.bytes() <= StepEdits::bytes_for(3, kLarge));
}

TEST_CASE("a table of counts follows its choice, is rebuilt when it fell behind, changes hands") {
  CountPlaces places(2);
  const auto use = [&](int32_t slot, int32_t known, int32_t position) {
    const CountPlaces::Use use = places.use(slot, known, position);
    return std::array{use.table, use.build ? 1 : 0, use.add_last ? 1 : 0};
  };
  using Three = std::array<int32_t, 3>;
  places.begin_step();
  CHECK(use(7, 10, 10) == Three{0, 1, 0});
  CHECK(use(8, 4, 5) == Three{1, 1, 1});  // built while its last token was in flight
  places.begin_step();
  CHECK(use(7, 10, 11) == Three{0, 0, 1});
  places.begin_step();
  CHECK(use(7, 13, 13) == Three{0, 1, 0});  // position 12 was sampled elsewhere
  CHECK(use(9, 3, 3) == Three{1, 1, 0});    // 8 has not been used for longest
  places.begin_step();
  CHECK(use(8, 6, 6) ==
        Three{0, 1, 0});  // and now neither has 7: used as long ago as 9, but before
  places.close(9);
  CHECK(use(1, 2, 2) == Three{1, 1, 0});
  places.close(1);
  places.begin_step();
  CHECK(use(1, 2, 2) == Three{1, 1, 0});  // another choice in the same slot
  places.close(5);                        // had none
}
