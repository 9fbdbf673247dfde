#include "model/count_tables.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {

CountTables::CountTables(int32_t num_tables, int32_t vocab_size)
    : vocab_size_(vocab_size),
      entries_max_(static_cast<size_t>(std::max(vocab_size, kEntries))),
      places_(num_tables),
      tables_(int64_t{num_tables} * vocab_size * static_cast<int64_t>(sizeof(int32_t))) {
  for (PinnedBuffer& entries : entries_)
    entries = PinnedBuffer(static_cast<int64_t>(entries_max_ * sizeof(TokenCount)));
}

void CountTables::begin_step(int32_t place, const std::vector<int32_t>& closed_slots) {
  for (const int32_t slot : closed_slots) places_.close(slot);
  places_.begin_step();
  place_ = static_cast<size_t>(place);
  num_entries_ = 0;
}

void CountTables::use(StepEdits::Row* row, cudaStream_t stream) {
  const ChoiceState& choice = *row->choice;
  const CountPlaces::Use use = places_.use(row->slot, choice.next_position(), row->position);
  row->counts = tables_.as<int32_t>() + int64_t{use.table} * vocab_size_;
  row->counts_last = use.add_last;
  if (!use.build) return;
  TokenCount* entries = room_for(choice.counts().size(), stream);
  TokenCount* next = entries;
  for (const auto& [token, count] : choice.counts()) *next++ = {token, 1 + count};
  build_counts_cuda(entries, static_cast<int32_t>(next - entries), row->counts, vocab_size_,
                    stream);
}

TokenCount* CountTables::room_for(size_t count, cudaStream_t stream) {
  CHECK_LE(count, entries_max_) << "tokens of a choice";
  if (num_entries_ + count > entries_max_) {
    cuda_check(cudaStreamSynchronize(stream), "build_counts");
    num_entries_ = 0;
  }
  TokenCount* entries = entries_[place_].as<TokenCount>() + num_entries_;
  num_entries_ += count;
  return entries;
}

}  // namespace baton
