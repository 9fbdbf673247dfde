#include "model/step_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

constexpr int64_t kAlignment = 16;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Hands out places one after the other.
class Places {
 public:
  template <typename E>
  int64_t take(int64_t count) {
    return take_bytes(count * static_cast<int64_t>(sizeof(E)));
  }
  int64_t take_bytes(int64_t bytes) { return std::exchange(end_, end_ + aligned(bytes)); }
  int64_t end() const { return end_; }

 private:
  int64_t end_ = 0;
};

// `values`, then `padding` up to `count`.
template <typename E>
void fill(std::byte* to, std::span<const E> values, int32_t count, E padding) {
  auto* out = reinterpret_cast<E*>(to);
  std::copy(values.begin(), values.end(), out);
  std::fill(out + values.size(), out + count, padding);
}

}  // namespace

StepStaging::StepStaging(const KvLayout& layout, std::vector<const AttentionPlanner*> planners,
                         std::vector<std::byte*> scratch, const Limits& limits)
    : layout_(layout),
      planners_(std::move(planners)),
      scratch_(std::move(scratch)),
      limits_(limits) {}

StepStaging::Places StepStaging::places(const StepShape& shape) const {
  baton::Places next;
  Places at;
  at.tokens = next.take<int32_t>(shape.tokens);
  at.positions = next.take<int32_t>(shape.tokens);
  at.logit_rows = next.take<int32_t>(shape.logit_rows);
  at.params = next.take<SampleParams>(shape.samples);
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    at.slot_mappings.push_back(next.take<int32_t>(shape.tokens));
    at.sequences.push_back(next.take<AttentionSequence>(shape.sequences));
  }
  for (const AttentionPlanner* planner : planners_)
    at.lists.push_back(next.take_bytes(planner->lists_bytes()));
  at.end = next.end();
  return at;
}

int64_t StepStaging::bytes_max() const {
  int64_t bytes = places({.tokens = limits_.tokens,
                          .sequences = limits_.sequences,
                          .logit_rows = limits_.tokens,
                          .samples = limits_.samples})
                      .end;
  bytes += StepEdits::bytes_for(limits_.samples, limits_.vocab_size);
  for (const KvGroup& group : layout_.groups) {
    bytes += int64_t{limits_.sequences} *
             aligned(group.pages_for(limits_.context_len) * int64_t{sizeof(int32_t)});
  }
  return bytes;
}

bool StepStaging::holds(const StepEdits& edits) const {
  return edits.bytes() <= StepEdits::bytes_for(limits_.samples, limits_.vocab_size);
}

void StepStaging::stage(const Batch& batch, const std::vector<LogitRow>& rows,
                        std::span<const SampleParams> params, const StepEdits& edits,
                        const StepShape& shape, std::byte* host, std::byte* device,
                        StagedStep* staged) const {
  CHECK_LE(shape.tokens, limits_.tokens) << "tokens of a step";
  CHECK_LE(shape.sequences, limits_.sequences) << "sequences of a step";
  CHECK_LE(shape.samples, limits_.samples) << "samples of a step";
  const Places at = places(shape);
  fill<int32_t>(host + at.tokens, batch.tokens, shape.tokens, 0);
  fill<int32_t>(host + at.positions, batch.positions, shape.tokens, 0);
  auto* logit_rows = reinterpret_cast<int32_t*>(host + at.logit_rows);
  for (size_t i = 0; i < rows.size(); ++i) logit_rows[i] = rows[i].row;
  for (auto i = static_cast<int32_t>(rows.size()); i < shape.logit_rows; ++i) logit_rows[i] = i;
  fill<SampleParams>(host + at.params, params, shape.samples, SampleParams{});

  staged->source_tokens = reinterpret_cast<const int32_t*>(device + at.tokens);
  staged->logit_rows = reinterpret_cast<const int32_t*>(device + at.logit_rows);
  staged->params = reinterpret_cast<const SampleParams*>(device + at.params);
  staged->batch.positions = reinterpret_cast<const int32_t*>(device + at.positions);
  staged->batch.num_tokens = shape.tokens;
  staged->batch.groups.resize(layout_.groups.size());
  staged->plans.resize(layout_.groups.size());
  int64_t end = at.end;
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    fill<int32_t>(host + at.slot_mappings[g], batch.groups[g].slot_mapping, shape.tokens, -1);
    end = stage_sequences(batch, g, shape, end, at, host, device);
    const auto* sequences = reinterpret_cast<const AttentionSequence*>(host + at.sequences[g]);
    planners_[g]->make_plan(
        {sequences, static_cast<size_t>(shape.sequences)},
        {.lists_host = host + at.lists[g], .lists = device + at.lists[g], .scratch = scratch_[g]},
        &staged->plans[g]);
    staged->batch.groups[g] = {
        .slot_mapping = reinterpret_cast<const int32_t*>(device + at.slot_mappings[g]),
        .attention = {
            .sequences = reinterpret_cast<const AttentionSequence*>(device + at.sequences[g]),
            .num_sequences = shape.sequences,
            .plan = &staged->plans[g]}};
  }
  edits.write({.host = host + end,
               .device = device + end,
               .params = reinterpret_cast<SampleParams*>(host + at.params),
               .tokens = staged->batch.tokens,
               .edited = staged->edited,
               .vocab_size = limits_.vocab_size});
  staged->bytes = end + edits.bytes();
}

// Block tables come from `table_at` on, behind everything whose place is fixed; returns where they
// end.
int64_t StepStaging::stage_sequences(const Batch& batch, size_t g, const StepShape& shape,
                                     int64_t table_at, const Places& at, std::byte* host,
                                     std::byte* device) const {
  const std::vector<AttentionSequence>& real = batch.groups[g].sequences;
  auto* sequences = reinterpret_cast<AttentionSequence*>(host + at.sequences[g]);
  for (size_t i = 0; i < real.size(); ++i) {
    const int64_t bytes = layout_.groups[g].pages_for(real[i].first_pos + real[i].num_tokens) *
                          int64_t{sizeof(int32_t)};
    std::memcpy(host + table_at, real[i].block_table, static_cast<size_t>(bytes));
    sequences[i] = real[i];
    sequences[i].block_table = reinterpret_cast<const int32_t*>(device + table_at);
    table_at += aligned(bytes);
  }
  // A padded sequence is one row of a graph's batch.
  for (auto i = static_cast<int32_t>(real.size()); i < shape.sequences; ++i)
    sequences[i] = {.row = i};
  return table_at;
}

}  // namespace baton
