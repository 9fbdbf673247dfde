#include "kernels/attention/attention_plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace baton {
namespace {

// Units of a sequence, by their size; where a window cuts one there is one more. More of them for
// long sequences, where their cost does not show.
constexpr int32_t kUnitsAim = 16, kUnitsAimLong = 32, kLong = 4096;
constexpr int32_t kUnitsMax = kUnitsAimLong + 2;
// A sequence is split when it is this much more than a CTA's share of the step; a short one, where
// sums from several CTAs cost more than they win, only when it is as much above an SM's share.
constexpr double kSplitShare = 1.25;
constexpr int32_t kShort = 1536;
constexpr int32_t kCountInts = 4;

int32_t ceil_div(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}

int32_t unit_tokens_for(int32_t visible) {
  int32_t unit = kDecodeTile;
  while (unit * (visible > kLong ? kUnitsAimLong : kUnitsAim) < visible) unit *= 2;
  return unit;
}

// Keys [first, last] that rows [row_begin, row_begin + kDecodeRows) of a decode see.
struct Span {
  int32_t first, last;
  int32_t size() const { return last - first + 1; }
};

Span visible_span(const AttentionSequence& sequence, int32_t row_begin, int32_t group,
                  int32_t window) {
  const int32_t first_token = row_begin / group;
  const int32_t last_token =
      std::min(sequence.num_tokens - 1, (row_begin + kDecodeRows - 1) / group);
  const int32_t first = window > 0 ? std::max(0, sequence.first_pos + first_token - window + 1) : 0;
  return {first, sequence.first_pos + last_token};
}

int32_t cost(const DecodeWork& work) {
  return (work.unit_end - work.unit_begin) * work.unit_tokens;
}

bool is_decode(const AttentionSequence& sequence) {
  return sequence.num_tokens <= kDecodeMaxTokens;
}

}  // namespace

AttentionPlanner::AttentionPlanner(const AttentionShape& shape, int32_t max_sequences,
                                   int32_t max_tokens, int32_t num_sms)
    : shape_(shape),
      group_(shape.num_heads / shape.num_kv_heads),
      max_sequences_(max_sequences),
      max_tokens_(max_tokens),
      num_sms_(num_sms) {
  CHECK_EQ(group_ * shape.num_kv_heads, shape.num_heads) << "query heads, KV heads x group";
  CHECK_LE(group_, kAttentionGroupMax) << "query heads a KV head";
}

// As many as one sequence an SM could fill: those beyond are not split.
int32_t AttentionPlanner::max_slots() const {
  return (num_sms_ / shape_.num_kv_heads + 1) * kUnitsMax;
}

int32_t AttentionPlanner::max_decode_work() const {
  return max_sequences_ * ceil_div(kDecodeMaxTokens * group_, kDecodeRows) + max_slots();
}

int32_t AttentionPlanner::max_prefill_work() const {
  // Every sequence may end with a tile that is not full.
  return ceil_div(max_tokens_ * group_, kPrefillRows) + max_sequences_;
}

int64_t AttentionPlanner::lists_bytes() const {
  const int64_t bytes = static_cast<int64_t>(sizeof(int32_t)) * kCountInts +
                        static_cast<int64_t>(sizeof(DecodeWork)) * max_decode_work() +
                        static_cast<int64_t>(sizeof(PrefillWork)) * max_prefill_work();
  return (bytes + 15) / 16 * 16;
}

int64_t AttentionPlanner::scratch_bytes() const {
  const int64_t slots = static_cast<int64_t>(max_slots()) * shape_.num_kv_heads;
  const int64_t ints = kCountInts + (slots + 3) / 4 * 4;
  return ints * static_cast<int64_t>(sizeof(int32_t)) +
         slots * kDecodeRows * (shape_.head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

int64_t AttentionPlanner::make_plan(std::span<const AttentionSequence> sequences,
                                    const AttentionPlanMemory& memory, AttentionPlan* plan) const {
  CHECK_LE(static_cast<int32_t>(sequences.size()), max_sequences_) << "sequences of a step";
  const int64_t decode_at = kCountInts * sizeof(int32_t);
  const int64_t prefill_at =
      decode_at + static_cast<int64_t>(sizeof(DecodeWork)) * max_decode_work();
  auto* counts = reinterpret_cast<int32_t*>(memory.lists_host);
  std::fill_n(counts, kCountInts, 0);
  add_decodes(sequences, reinterpret_cast<DecodeWork*>(memory.lists_host + decode_at), &counts[0]);
  add_prefills(sequences, reinterpret_cast<PrefillWork*>(memory.lists_host + prefill_at),
               &counts[1]);

  const int64_t slots = static_cast<int64_t>(max_slots()) * shape_.num_kv_heads;
  auto* ints = reinterpret_cast<int32_t*>(memory.scratch);
  *plan = {.decode_work = reinterpret_cast<const DecodeWork*>(memory.lists + decode_at),
           .prefill_work = reinterpret_cast<const PrefillWork*>(memory.lists + prefill_at),
           .counts = reinterpret_cast<const int32_t*>(memory.lists),
           .queues = ints,
           .tickets = ints + kCountInts,
           .partials = reinterpret_cast<float*>(ints + kCountInts + (slots + 3) / 4 * 4),
           .num_sms = num_sms_,
           .has_decode = counts[0] > 0,
           .has_prefill = counts[1] > 0};
  const int64_t used = counts[1] > 0
                           ? prefill_at + counts[1] * static_cast<int64_t>(sizeof(PrefillWork))
                           : decode_at + counts[0] * static_cast<int64_t>(sizeof(DecodeWork));
  return (used + 15) / 16 * 16;
}

void AttentionPlanner::add_decodes(std::span<const AttentionSequence> sequences, DecodeWork* work,
                                   int32_t* count) const {
  double total = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (!is_decode(sequence)) continue;
    for (int32_t row = 0; row < sequence.num_tokens * group_; row += kDecodeRows) {
      total += visible_span(sequence, row, group_, shape_.window).size();
    }
  }
  const double share = total * shape_.num_kv_heads / (num_sms_ * kDecodeCtasPerSm);
  int32_t slot = 0, used = 0;
  for (const AttentionSequence& sequence : sequences) {
    if (!is_decode(sequence)) continue;
    if (sequence.num_tokens == 0) {
      work[used++] = {.row = sequence.row, .num_rows = group_, .slot = -1};
      continue;
    }
    const int32_t length = sequence.first_pos + sequence.num_tokens;
    const int32_t unit = unit_tokens_for(
        shape_.window > 0 ? std::min(length, shape_.window + sequence.num_tokens) : length);
    for (int32_t row = 0; row < sequence.num_tokens * group_; row += kDecodeRows) {
      const Span span = visible_span(sequence, row, group_, shape_.window);
      const int32_t begin = span.first / unit, end = span.last / unit + 1;
      DecodeWork item = {
          .block_table = sequence.block_table,
          .row = sequence.row + row / group_,
          .position = sequence.first_pos + row / group_,
          .first_new = sequence.first_pos,
          .first_head = row % group_,
          .num_rows = std::min(kDecodeRows, sequence.num_tokens * group_ - row),
          .unit_tokens = unit,
          .unit_begin = begin,
          .unit_end = end,
          .slot = -1,
          .first_unit = begin,
          .num_units = end - begin,
      };
      const double most = kSplitShare * share * (span.size() <= kShort ? kDecodeCtasPerSm : 1);
      const int32_t step = std::max(1, static_cast<int32_t>(std::ceil(share / unit)));
      if (span.size() <= most || step >= item.num_units || slot + item.num_units > max_slots()) {
        work[used++] = item;
        continue;
      }
      item.slot = slot;
      for (; item.unit_begin < end; item.unit_begin += step) {
        item.unit_end = std::min(item.unit_begin + step, end);
        work[used++] = item;
      }
      slot += end - begin;
    }
  }
  CHECK_LE(used, max_decode_work()) << "decode items of a step";
  // The longest first, so that what the CTAs take last is short.
  std::sort(work, work + used,
            [](const DecodeWork& a, const DecodeWork& b) { return cost(a) > cost(b); });
  *count = used;
}

void AttentionPlanner::add_prefills(std::span<const AttentionSequence> sequences, PrefillWork* work,
                                    int32_t* count) const {
  int32_t used = 0, tokens = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (is_decode(sequences[s])) continue;
    tokens += sequences[s].num_tokens;
    CHECK_LE(tokens, max_tokens_) << "new tokens of a step";
    const int32_t rows = sequences[s].num_tokens * group_;
    for (int32_t row = 0; row < rows; row += kPrefillRows) {
      work[used++] = {static_cast<int32_t>(s), row};
    }
  }
  const auto keys_end = [&](const PrefillWork& item) {
    return sequences[item.sequence].first_pos + item.row_begin / group_;
  };
  std::sort(work, work + used,
            [&](const PrefillWork& a, const PrefillWork& b) { return keys_end(a) > keys_end(b); });
  *count = used;
}

}  // namespace baton
