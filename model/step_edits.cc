#include "model/step_edits.h"

#include <cstring>

#include "base/check.h"

namespace baton {
namespace {

template <typename E>
int64_t aligned_bytes(size_t count) {
  return static_cast<int64_t>((count * sizeof(E) + 15) / 16 * 16);
}

// Copies lists one behind the other.
class Writer {
 public:
  Writer(std::byte* host, std::byte* device) : host_(host), device_(device) {}

  // Where it will lie on the GPU; null if it is empty.
  template <typename E>
  const E* write(const E* values, size_t count) {
    if (count == 0) return nullptr;
    std::memcpy(host_, values, count * sizeof(E));
    const auto* there = reinterpret_cast<const E*>(device_);
    host_ += aligned_bytes<E>(count);
    device_ += aligned_bytes<E>(count);
    return there;
  }

 private:
  std::byte* host_;
  std::byte* device_;
};

}  // namespace

void StepEdits::clear() {
  rows_.clear();
  bans_.clear();
}

void StepEdits::gather(const std::vector<LogitRow>& rows, const std::vector<SampleRow>& samples) {
  clear();
  for (const LogitRow& row : rows) {
    for (int32_t s = row.first_sample; s < row.first_sample + row.num_samples; ++s)
      gather(row, s, samples[static_cast<size_t>(s)]);
  }
}

void StepEdits::gather(const LogitRow& row, int32_t sample, const SampleRow& drawn) {
  const ChoiceState& choice = *drawn.choice;
  if (choice.ended()) return;  // nobody reads its token
  const int32_t in_flight = row.next_position() - choice.next_position();
  CHECK(in_flight == 0 || in_flight == 1)
      << "slot " << drawn.slot << ": " << in_flight << " tokens in flight";
  if (!choice.adjusts(in_flight)) return;
  const auto first_ban = static_cast<int32_t>(bans_.size());
  choice.add_bans(in_flight, &bans_);
  rows_.push_back({.sample = sample,
                   .slot = drawn.slot,
                   .batch_row = row.row,
                   .position = row.next_position(),
                   .choice = &choice,
                   .first_ban = first_ban,
                   .num_bans = static_cast<int32_t>(bans_.size()) - first_ban});
}

int64_t StepEdits::bytes() const {
  int64_t bytes = aligned_bytes<RowEdits>(rows_.size());
  for (const Row& row : rows_) {
    bytes += aligned_bytes<uint32_t>(row.choice->allowed().size()) +
             aligned_bytes<TokenBan>(static_cast<size_t>(row.num_bans)) +
             aligned_bytes<TokenBias>(row.choice->biases().size());
  }
  return bytes;
}

int64_t StepEdits::bytes_for(int32_t rows, int32_t vocab_size) {
  return aligned_bytes<RowEdits>(static_cast<size_t>(rows)) +
         rows * (aligned_bytes<uint32_t>(static_cast<size_t>(mask_words(vocab_size))) +
                 kEditListBytes);
}

void StepEdits::write(const Place& place) const {
  auto* host = reinterpret_cast<RowEdits*>(place.host);
  const auto* device = reinterpret_cast<const RowEdits*>(place.device);
  const int64_t lists_at = aligned_bytes<RowEdits>(rows_.size());
  Writer lists(place.host + lists_at, place.device + lists_at);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    const ChoiceState& choice = *row.choice;
    const SamplingSpec& spec = choice.spec();
    host[i] = {.edited = place.edited + i * static_cast<size_t>(place.vocab_size),
               .allowed = lists.write(choice.allowed().data(), choice.allowed().size()),
               .bans = lists.write(bans_.data() + row.first_ban, static_cast<size_t>(row.num_bans)),
               .biases = lists.write(choice.biases().data(), choice.biases().size()),
               .num_bans = row.num_bans,
               .num_biases = static_cast<int32_t>(choice.biases().size()),
               .counts = row.counts,
               .last_token = place.tokens + row.batch_row,
               .counts_last = row.counts_last ? 1 : 0,
               .repetition_penalty = spec.repetition_penalty,
               .frequency_penalty = spec.frequency_penalty,
               .presence_penalty = spec.presence_penalty};
    place.params[row.sample].edits = device + i;
  }
}

}  // namespace baton
