#include "kernels/attention/attention_plan.h"

#include <random>
#include <vector>

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr unsigned kSeed = 5519;

struct Lists {
  Lists(const AttentionShape& shape, const std::vector<AttentionSequence>& sequences) {
    const AttentionPlanner planner(shape, static_cast<int32_t>(sequences.size()), 4096, 132);
    memory.resize(planner.lists_bytes() / sizeof(int32_t));
    auto* host = reinterpret_cast<std::byte*>(memory.data());
    AttentionPlan plan;
    planner.make_plan(sequences, {host, host, nullptr}, &plan);  // "device" is the host here
    decode.assign(plan.decode_work, plan.decode_work + plan.counts[0]);
    prefill.assign(plan.prefill_work, plan.prefill_work + plan.counts[1]);
  }
  std::vector<int32_t> memory;
  std::vector<DecodeWork> decode;
  std::vector<PrefillWork> prefill;
};

TEST_CASE("the planner's items cover every unit once, in units of the sequence's own size") {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 200; ++round) {
    const int32_t window = round % 3 == 0 ? 300 : 0;
    std::vector<AttentionSequence> sequences;
    int32_t row = 0;
    for (int32_t s = 0; s < 1 + round; ++s) {
      const int32_t tokens = static_cast<int32_t>(random() % 20);
      sequences.push_back(
          {row, tokens, static_cast<int32_t>(random() % (40 * round + 1)), nullptr});
      row += tokens;
    }
    const AttentionShape shape = {32, 8, 128, window};
    const Lists lists(shape, sequences);
    std::vector<int32_t> units(4 * row), seen(4 * row), owner(row);
    for (size_t s = 0; s < sequences.size(); ++s) {
      for (int32_t t = 0; t < sequences[s].num_tokens; ++t) {
        owner[sequences[s].row + t] = static_cast<int32_t>(s);
      }
    }
    for (const DecodeWork& work : lists.decode) {
      if (work.unit_tokens == 0) continue;
      const AttentionSequence& sequence = sequences[owner[work.row]];
      REQUIRE_LE(sequence.num_tokens, kDecodeMaxTokens);
      CHECK_EQ(work.position - sequence.first_pos, work.row - sequence.row);
      CHECK_EQ(Lists(shape, {sequence}).decode[0].unit_tokens, work.unit_tokens);
      CHECK_LE(work.unit_end - work.first_unit, work.num_units);
      CHECK_EQ(work.slot < 0, work.unit_end - work.unit_begin == work.num_units);
      const int32_t first = 4 * work.row + work.first_head;
      units[first] += work.unit_end - work.unit_begin;
      if (units[first] < work.num_units) continue;
      CHECK_EQ(units[first], work.num_units);
      for (int32_t r = first; r < first + work.num_rows; ++r) ++seen[r];
    }
    for (int32_t r = 0; r < 4 * row; ++r) {
      CHECK_EQ(seen[r], sequences[owner[r / 4]].num_tokens <= kDecodeMaxTokens ? 1 : 0);
    }
    for (const PrefillWork& work : lists.prefill) {
      CHECK_GT(sequences[work.sequence].num_tokens, kDecodeMaxTokens);
    }
  }
}

}  // namespace
}  // namespace baton
