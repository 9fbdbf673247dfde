// For tests of the scheduler and of what drives it: an engine without a model. Each cell of a page
// holds the token and position that was written there and a hash of everything before it, so a
// chunk that reads another sequence's page, a page reused too early or an unwritten one is found at
// once. A sampled token is a hash of (seed, choice, position, all tokens before it). Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/engine.h"

namespace baton {

struct FakeCell {
  TokenId token = -1;
  int32_t position = -1;
  uint64_t hash = 0;  // of tokens [0, position]
  bool operator==(const FakeCell&) const = default;
};
using FakePage = std::vector<FakeCell>;

inline constexpr TokenId kFakeVocab = 50;
inline constexpr TokenId kFakeEos = 3;

uint64_t fake_hash(uint64_t before, TokenId token);
// The token after tokens with hash `before`.
TokenId fake_sample(const SamplingSpec& spec, int32_t choice, int32_t position, uint64_t before);

// Throws std::logic_error with one line when a step is not what a correct scheduler gives out.
class FakeEngine final : public Engine {
 public:
  FakeEngine(const KvLayout& layout, const std::vector<int32_t>& pages_per_group,
             int32_t context_len);

  int32_t steps_in_flight_max() const override { return 1; }
  void submit(StepInput input) override { submitted_ = std::move(input); }
  StepOutput collect() override;
  FakePage& page(int32_t group, int32_t page_id);
  // What its steps claim to take; 0 at the start: they say nothing.
  void set_us_per_token(int64_t us) { us_per_token_ = us; }

 private:
  struct Slot {
    SlotOpen opened;
    std::vector<TokenId> tokens;
    bool ended = false;
  };

  void run_chunk(const Chunk& chunk, StepOutput& output);
  uint64_t read_before(const Chunk& chunk, size_t group);
  void write(const Chunk& chunk, int32_t position, TokenId token, uint64_t hash);
  void sample(const Chunk& chunk, int32_t slot_number, int32_t position, uint64_t hash,
              StepOutput& output);
  FakePage& page_of(const Chunk& chunk, size_t group, int32_t position);

  const KvLayout layout_;
  const int32_t context_len_;
  int64_t us_per_token_ = 0;
  StepInput submitted_;
  std::vector<std::vector<FakePage>> pages_;  // [group][page_id]
  std::map<int32_t, Slot> slots_;
};

}  // namespace baton
