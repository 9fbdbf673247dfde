// Where a step's arrays lie: host arithmetic, no GPU needed. The "device" is a second host buffer
// that the staged bytes are copied to.
#include "model/step_staging.h"

#include <cstring>

#include "model/graph_buckets.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr int32_t kVocab = 10000;

KvLayout make_layout() {
  const KvGroup full{.layers = {0, 2},
                     .num_kv_heads = 2,
                     .head_dim = 64,
                     .page_tokens = 16,
                     .dtype = Dtype::kBF16};
  KvGroup window = full;
  window.layers = {1};
  window.window = 32;
  return {.groups = {full, window}};
}

struct Fixture {
  Fixture() {
    for (const KvGroup& group : layout.groups) {
      planners.emplace_back(
          AttentionShape{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .window = group.window},
          16, 64, 132);
    }
    scratch.resize(static_cast<size_t>(planners[0].scratch_bytes()));
    staging.emplace(layout, std::vector<const AttentionPlanner*>{&planners[0], &planners[1]},
                    std::vector<std::byte*>{scratch.data(), scratch.data()},
                    StepStaging::Limits{.tokens = 64,
                                        .sequences = 16,
                                        .samples = 16,
                                        .context_len = 256,
                                        .vocab_size = kVocab});
    host.resize(static_cast<size_t>(staging->bytes_max()), std::byte{0xAA});
    device.resize(host.size(), std::byte{0xBB});
  }

  Chunk chunk(int32_t first_pos, int32_t count, int32_t slot) const {
    Chunk result{.seq = static_cast<uint64_t>(slot), .first_pos = first_pos};
    for (int32_t i = 0; i < count; ++i) result.tokens.push_back(slot * 100 + i);
    std::vector<int32_t> table;
    for (int32_t i = 0; i * 16 < first_pos + count; ++i) table.push_back(slot * 20 + i);
    result.block_tables = {table, table};
    result.sample_slots = {slot};
    return result;
  }

  const StagedStep& stage(const StepInput& input, const StepShape& shape) {
    choices.update(input);
    batch.build(input, choices, {});
    std::vector<SampleParams> params;
    for (size_t i = 0; i < batch.samples().size(); ++i)
      params.push_back({.row = static_cast<int32_t>(i), .top_k = 5});
    staging->stage(batch.batch(), batch.logit_rows(), params, edits, shape, host.data(),
                   device.data(), &staged);
    REQUIRE(staged.bytes <= staging->bytes_max());
    std::memcpy(device.data(), host.data(), static_cast<size_t>(staged.bytes));
    return staged;
  }

  KvLayout layout = make_layout();
  std::vector<AttentionPlanner> planners;
  std::vector<std::byte> scratch;
  std::optional<StepStaging> staging;
  std::vector<std::byte> host, device;
  ChoiceTable choices{256, kVocab};
  StepBatch batch{layout, kVocab, 256};
  StepEdits edits;
  StagedStep staged;
};

SlotOpen open(int32_t slot) {
  return {.slot = slot, .prompt_len = 1, .tokens = {0}};
}

}  // namespace

TEST_CASE("a mixed step arrives whole: tokens, positions, rows, samples, sequences, tables") {
  Fixture f;
  const StagedStep& staged = f.stage(
      {.opened_slots = {open(0), open(1)}, .chunks = {f.chunk(0, 40, 0), f.chunk(100, 1, 1)}},
      {41, 2, 2, 2});
  CHECK(staged.source_tokens[39] == 39);
  CHECK(staged.source_tokens[40] == 100);
  CHECK(staged.batch.positions[40] == 100);
  CHECK(staged.logit_rows[0] == 39);
  CHECK(staged.logit_rows[1] == 40);
  CHECK(staged.params[1].top_k == 5);
  REQUIRE(staged.batch.groups.size() == 2);
  for (const GroupView& group : staged.batch.groups) {
    CHECK(group.slot_mapping[17] == 1 * 16 + 1);
    CHECK(group.slot_mapping[40] == 26 * 16 + 4);
    REQUIRE(group.attention.num_sequences == 2);
    const AttentionSequence& decode = group.attention.sequences[1];
    CHECK(decode.row == 40);
    CHECK(decode.first_pos == 100);
    // Both the sequence and what was planned with it point into the device's memory.
    const auto* table = reinterpret_cast<const std::byte*>(decode.block_table);
    CHECK(table >= f.device.data());
    CHECK(table < f.device.data() + staged.bytes);
    for (int32_t page = 0; page <= 100 / 16; ++page) CHECK(decode.block_table[page] == 20 + page);
    CHECK(group.attention.plan->has_decode);
    CHECK(group.attention.plan->has_prefill);
    CHECK(group.attention.plan->counts[1] > 0);
  }
}

TEST_CASE("what changes a row comes behind all else, and its sample points there") {
  Fixture f;
  SlotOpen biased = open(1);
  biased.spec.logit_bias = {{7, 2.0F}};
  const StepInput input{.opened_slots = {open(0), biased},
                        .chunks = {f.chunk(0, 1, 0), f.chunk(0, 1, 1)}};
  const int64_t bytes = f.stage(input, {2, 2, 2, 2}).bytes;
  f.edits.gather(f.batch.logit_rows(), f.batch.samples());
  REQUIRE(f.staging->holds(f.edits));
  const StagedStep& staged = f.stage({.chunks = input.chunks}, {2, 2, 2, 2});
  CHECK(staged.bytes > bytes);
  CHECK(staged.params[0].edits == nullptr);
  REQUIRE(staged.params[1].edits != nullptr);
  const RowEdits& edits = *staged.params[1].edits;
  CHECK(reinterpret_cast<const std::byte*>(&edits) >= f.device.data() + bytes);
  REQUIRE(edits.num_biases == 1);
  CHECK(edits.biases[0].token == 7);
  CHECK(edits.allowed == nullptr);
  CHECK(edits.last_token == staged.batch.tokens + 1);
}

TEST_CASE("padding of a bucket writes no KV, attends to nothing and samples greedily") {
  Fixture f;
  const StagedStep& staged =
      f.stage({.opened_slots = {open(0)}, .chunks = {f.chunk(50, 1, 0)}}, {4, 4, 4, 4});
  for (int32_t i = 1; i < 4; ++i) {
    CHECK(staged.source_tokens[i] == 0);
    CHECK(staged.batch.positions[i] == 0);
    CHECK(staged.batch.groups[1].slot_mapping[i] == -1);
    CHECK(staged.batch.groups[1].attention.sequences[i].num_tokens == 0);
    CHECK(staged.batch.groups[1].attention.sequences[i].row == i);
    CHECK(staged.logit_rows[i] == i);
    CHECK(staged.params[i].greedy == 1);
    CHECK(staged.params[i].row == 0);
  }
}

TEST_CASE("arrays of equal shape lie at equal places, whatever the lengths of the sequences") {
  Fixture f;
  const auto* tokens =
      f.stage({.opened_slots = {open(0)}, .chunks = {f.chunk(3, 1, 0)}}, {2, 2, 2, 2})
          .source_tokens;
  const AttentionPlan plan = f.staged.plans[1];
  const SampleParams* params = f.staged.params;
  f.stage({.opened_slots = {open(1)}, .chunks = {f.chunk(200, 1, 0), f.chunk(90, 1, 1)}},
          {2, 2, 2, 2});
  CHECK(f.staged.source_tokens == tokens);
  CHECK(f.staged.params == params);
  CHECK(f.staged.plans[1].decode_work == plan.decode_work);
  CHECK(f.staged.plans[1].counts == plan.counts);
}

TEST_CASE("a batch takes the smallest graph that holds it") {
  const std::vector<int32_t> buckets = graph_buckets(100);
  CHECK(buckets.back() == 128);
  CHECK(bucket_for(buckets, 1) == 1);
  CHECK(bucket_for(buckets, 3) == 4);
  CHECK(bucket_for(buckets, 97) == 128);
  CHECK(bucket_for(buckets, 129) == 0);
  CHECK(graph_buckets(1) == std::vector<int32_t>{1});
  CHECK(graph_buckets(300).back() == 384);
}
