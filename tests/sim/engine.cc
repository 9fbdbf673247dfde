#include "tests/sim/engine.h"

#include <algorithm>
#include <cstring>

namespace baton::sim {

namespace {

constexpr uint32_t kMark = 0xBA70BA70;

struct Record {
  uint64_t digest = 0;
  int32_t position = 0;
  uint32_t mark = 0;
};
static_assert(sizeof(Record) == 4 * sizeof(float),
              "fills the K of one token: one head of 4 floats");

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15ULL)) * 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 32);
}

std::vector<uint64_t> digests(const std::vector<TokenId>& tokens) {
  std::vector<uint64_t> chain;
  uint64_t digest = 1;
  for (const TokenId token : tokens)
    chain.push_back(digest = mix(digest, static_cast<uint64_t>(token)));
  return chain;
}

}  // namespace

KvLayout sim_layout(int32_t page_tokens, int32_t window) {
  KvLayout layout;
  KvGroup full;
  full.layers = {0, 1};
  full.num_kv_heads = 1;
  full.head_dim = 4;
  full.page_tokens = page_tokens;
  layout.groups.push_back(full);
  if (window > 0) {
    KvGroup sliding = full;
    sliding.layers = {2};
    sliding.window = window;
    layout.groups.push_back(sliding);
  }
  return layout;
}

TokenId next_token(const SamplingSpec& spec, int32_t choice, const std::vector<TokenId>& tokens,
                   int32_t prompt_len, FinishReason* finish) {
  const uint64_t drawn = mix(mix(spec.seed, static_cast<uint64_t>(choice)), digests(tokens).back());
  const auto token = static_cast<TokenId>(drawn % kVocab);
  const auto generated = static_cast<int32_t>(tokens.size()) + 1 - prompt_len;
  *finish = FinishReason::kNone;
  const bool ends = std::count(spec.eos_ids.begin(), spec.eos_ids.end(), token) != 0;
  if (ends && !spec.ignore_eos) {
    *finish = FinishReason::kStop;
  } else if (generated >= spec.max_tokens) {
    *finish = FinishReason::kLength;
  }
  return token;
}

bool SimEngine::begin() {
  if (steps_.empty()) return false;
  const StepInput step = std::move(steps_.front());
  steps_.pop_front();
  for (const int32_t slot : step.closed_slots) slots_.erase(slot);
  for (const SlotOpen& open : step.opened_slots)
    slots_[open.slot] = {open.spec, open.choice, open.prompt_len, open.tokens, false};
  for (const PageCopy& copy : step.page_copies) {
    const PagePool& pool = *pools_[copy.group];
    std::memcpy(pool.page(copy.dst_page), pool.page(copy.src_page), pool.page_bytes());
  }
  StepOutput output{.step = step.step};
  for (const Chunk& chunk : step.chunks) run_chunk(step, chunk, output);
  for (const KvGroup& group : layout_.groups) {
    for (const int32_t layer : group.layers) sink_.layer_written(step, layer);
  }
  output.compute_us = 1000;
  outputs_.push_back(std::move(output));
  return true;
}

bool SimEngine::end(StepOutput* output) {
  if (outputs_.empty()) return false;
  *output = std::move(outputs_.front());
  outputs_.pop_front();
  return true;
}

void SimEngine::run_chunk(const StepInput& step, const Chunk& chunk, StepOutput& output) {
  std::vector<TokenId> tokens = chunk.tokens;
  if (chunk.use_last) {
    const Slot& slot = slots_.at(chunk.sample_slots.at(0));
    if (slot.ended) return;
    tokens = {slot.tokens.back()};
    if (static_cast<int32_t>(slot.tokens.size()) != chunk.first_pos + 1)
      violation("a decode at the wrong position, step " + std::to_string(step.step));
  }
  uint64_t digest = 1;
  if (chunk.first_pos > 0) {
    Record before;
    std::memcpy(&before, record_at(chunk, 0, 0, 0, chunk.first_pos - 1), sizeof before);
    digest = before.digest;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    digest = mix(digest, static_cast<uint64_t>(tokens[i]));
    write(chunk, chunk.first_pos + static_cast<int32_t>(i), digest);
  }
  for (const int32_t number : chunk.sample_slots) {
    if (!slots_.at(number).ended) sample(chunk, tokens, number, output);
  }
}

void SimEngine::sample(const Chunk& chunk, const std::vector<TokenId>& tokens, int32_t number,
                       StepOutput& output) {
  Slot& slot = slots_.at(number);
  const int32_t end = chunk.first_pos + static_cast<int32_t>(tokens.size());
  if (static_cast<int32_t>(slot.tokens.size()) != end)
    violation("a slot with " + std::to_string(slot.tokens.size()) + " tokens sampled at " +
              std::to_string(end));
  const std::vector<uint64_t> chain = digests(slot.tokens);
  for (int32_t position = 0; position < std::min<int32_t>(end, static_cast<int32_t>(chain.size()));
       ++position) {
    check(chunk, position, chain[position]);
  }
  Sampled sampled{.seq = chunk.seq, .slot = number, .choice = slot.choice, .position = end};
  sampled.token = next_token(slot.spec, slot.choice, slot.tokens, slot.prompt_len, &sampled.finish);
  slot.tokens.push_back(sampled.token);
  slot.ended = sampled.finish != FinishReason::kNone;
  output.sampled.push_back(std::move(sampled));
}

std::byte* SimEngine::record_at(const Chunk& chunk, size_t group, int32_t layer, int32_t part,
                                int32_t position) const {
  const KvGroup& kv = layout_.groups[group];
  const auto index = static_cast<size_t>(position / kv.page_tokens);
  if (index >= chunk.block_tables[group].size() || chunk.block_tables[group][index] < 0)
    return nullptr;
  return pools_[group]->page(chunk.block_tables[group][index]) + layer * kv.layer_bytes() +
         part * kv.layer_bytes() / 2 +
         static_cast<int64_t>(position % kv.page_tokens) * static_cast<int64_t>(sizeof(Record));
}

void SimEngine::write(const Chunk& chunk, int32_t position, uint64_t digest) {
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    for (size_t slice = 0; slice < 2 * layout_.groups[group].layers.size(); ++slice) {
      const Record record{mix(digest, 0) == 0 ? 1 : digest, position,
                          kMark + static_cast<uint32_t>(slice)};
      std::byte* place =
          record_at(chunk, group, static_cast<int32_t>(slice / 2), slice % 2, position);
      if (place == nullptr) {
        violation("no page to write position " + std::to_string(position));
        return;
      }
      std::memcpy(place, &record, sizeof record);
    }
  }
}

// Position `position` of the sequence must hold exactly its own KV, in every layer that still sees
// it.
void SimEngine::check(const Chunk& chunk, int32_t position, uint64_t digest) {
  const int32_t query =
      chunk.first_pos + (chunk.use_last ? 0 : static_cast<int32_t>(chunk.tokens.size()) - 1);
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    const int32_t window = layout_.groups[group].window;
    if (window > 0 && position <= query - window) continue;
    for (size_t slice = 0; slice < 2 * layout_.groups[group].layers.size(); ++slice) {
      const std::byte* place =
          record_at(chunk, group, static_cast<int32_t>(slice / 2), slice % 2, position);
      Record record;
      if (place != nullptr) std::memcpy(&record, place, sizeof record);
      const bool right = place != nullptr && record.digest == digest &&
                         record.position == position &&
                         record.mark == kMark + static_cast<uint32_t>(slice);
      if (!right) {
        violation("wrong KV: group " + std::to_string(group) + " layer " +
                  std::to_string(slice / 2) + " position " + std::to_string(position) +
                  (place == nullptr
                       ? ": no page"
                       : ": position " + std::to_string(record.position) + " of other tokens"));
        return;
      }
    }
  }
}

void SimEngine::violation(const std::string& what) {
  violations_.push_back(what);
}

}  // namespace baton::sim
