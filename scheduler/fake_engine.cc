// The engine without a model: executes a step's bookkeeping and checks every read.
#include "scheduler/fake_engine.h"

#include <algorithm>

#include "scheduler/page_table.h"

namespace baton {
namespace {

[[noreturn]] void fail(const Chunk& chunk, const std::string& what) {
  throw std::logic_error("sequence " + std::to_string(chunk.seq) + ", chunk at " +
                         std::to_string(chunk.first_pos) + ": " + what);
}

uint64_t mix(uint64_t x) {  // finaliser of MurmurHash3 (public domain)
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

}  // namespace

uint64_t fake_hash(uint64_t before, TokenId token) {
  return mix(before * 31 + static_cast<uint64_t>(token) + 1);
}

TokenId fake_sample(const SamplingSpec& spec, int32_t choice, int32_t position, uint64_t before) {
  const uint64_t key =
      spec.seed * 1000003 + static_cast<uint64_t>(choice) * 8191 + static_cast<uint64_t>(position);
  return static_cast<TokenId>(mix(before ^ mix(key)) % kFakeVocab);
}

FakeEngine::FakeEngine(const KvLayout& layout, const std::vector<int32_t>& pages_per_group,
                       int32_t context_len)
    : layout_(layout), context_len_(context_len) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const FakePage empty(static_cast<size_t>(layout.groups[g].page_tokens));
    pages_.emplace_back(static_cast<size_t>(pages_per_group[g]), empty);
  }
}

FakePage& FakeEngine::page(int32_t group, int32_t page_id) {
  return pages_.at(static_cast<size_t>(group)).at(static_cast<size_t>(page_id));
}

StepOutput FakeEngine::collect() {
  const StepInput input = std::exchange(submitted_, {});
  StepOutput output;
  output.step = input.step;
  for (int32_t slot : input.closed_slots) {
    if (slots_.erase(slot) == 0) throw std::logic_error("closed a slot that was not open");
  }
  for (const SlotOpen& opened : input.opened_slots) {
    if (!slots_.emplace(opened.slot, Slot{opened, opened.tokens}).second) {
      throw std::logic_error("opened slot " + std::to_string(opened.slot) + " twice");
    }
  }
  for (const PageCopy& copy : input.page_copies) {
    page(copy.group, copy.dst_page) = page(copy.group, copy.src_page);
  }
  for (const Chunk& chunk : input.chunks) run_chunk(chunk, output);
  output.compute_us = input.num_tokens() * us_per_token_;
  return output;
}

FakePage& FakeEngine::page_of(const Chunk& chunk, size_t group, int32_t position) {
  const auto index = static_cast<size_t>(position / layout_.groups[group].page_tokens);
  const std::vector<int32_t>& table = chunk.block_tables.at(group);
  if (index >= table.size() || table[index] < 0) {
    fail(chunk, "no page for position " + std::to_string(position));
  }
  return pages_[group].at(static_cast<size_t>(table[index]));
}

// Checks everything that the chunk's first token sees before itself; the hash of it.
uint64_t FakeEngine::read_before(const Chunk& chunk, size_t group) {
  const KvGroup& kv_group = layout_.groups[group];
  uint64_t hash = 0;
  const int32_t first = first_visible(kv_group, chunk.first_pos);
  for (int32_t position = first; position < chunk.first_pos; ++position) {
    const FakePage& page = page_of(chunk, group, position);
    const FakeCell& cell = page[static_cast<size_t>(position % kv_group.page_tokens)];
    const bool follows =
        position == 0 || position == first || cell.hash == fake_hash(hash, cell.token);
    const bool starts = position != 0 || cell.hash == fake_hash(0, cell.token);
    if (cell.position != position || !follows || !starts) {
      fail(chunk, "kv_group " + std::to_string(group) + " position " + std::to_string(position) +
                      " holds position " + std::to_string(cell.position) + " of other tokens");
    }
    hash = cell.hash;
  }
  return hash;
}

void FakeEngine::write(const Chunk& chunk, int32_t position, TokenId token, uint64_t hash) {
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    const auto place = static_cast<size_t>(position % layout_.groups[g].page_tokens);
    page_of(chunk, g, position)[place] = {token, position, hash};
  }
}

void FakeEngine::run_chunk(const Chunk& chunk, StepOutput& output) {
  std::vector<TokenId> tokens = chunk.tokens;
  if (chunk.use_last) {
    const Slot& slot = slots_.at(chunk.sample_slots.at(0));
    if (slot.ended) return;
    tokens = {slot.tokens.back()};
  }
  if (tokens.empty()) fail(chunk, "no tokens");
  uint64_t hash = read_before(chunk, 0);
  for (size_t g = 1; g < layout_.groups.size(); ++g) {
    const bool sees = first_visible(layout_.groups[g], chunk.first_pos) < chunk.first_pos;
    if (sees && read_before(chunk, g) != hash) fail(chunk, "kv_groups hold different tokens");
  }
  ChunkLogprobs logprobs{chunk.seq, chunk.first_pos + 1, {}, {}};
  int32_t position = chunk.first_pos;
  for (size_t i = 0; i < tokens.size(); ++i, ++position) {
    hash = fake_hash(hash, tokens[i]);
    write(chunk, position, tokens[i], hash);
    const TokenId next = i + 1 < tokens.size() ? tokens[i + 1] : chunk.next_token;
    if (next >= 0) logprobs.tokens.push_back({next, static_cast<float>(position + 1)});
  }
  if (chunk.prompt_logprobs >= 0) output.prompt_logprobs.push_back(std::move(logprobs));
  for (int32_t slot : chunk.sample_slots) sample(chunk, slot, position, hash, output);
}

void FakeEngine::sample(const Chunk& chunk, int32_t slot_number, int32_t position, uint64_t hash,
                        StepOutput& output) {
  Slot& slot = slots_.at(slot_number);
  const SlotOpen& opened = slot.opened;
  uint64_t known = 0;
  for (TokenId token : slot.tokens) known = fake_hash(known, token);
  if (known != hash || static_cast<int32_t>(slot.tokens.size()) != position) {
    fail(chunk, "slot " + std::to_string(slot_number) + " holds other tokens than the pages");
  }
  if (slot.ended) fail(chunk, "sampled for a choice that has ended");
  Sampled sampled;
  sampled.seq = chunk.seq;
  sampled.slot = slot_number;
  sampled.choice = opened.choice;
  sampled.position = position;
  sampled.token = fake_sample(opened.spec, opened.choice, position, hash);
  const int32_t end = std::min(opened.prompt_len + opened.spec.max_tokens, context_len_);
  if (sampled.token == kFakeEos && !opened.spec.ignore_eos) {
    sampled.finish = FinishReason::kStop;
  } else if (position + 1 >= end) {
    sampled.finish = FinishReason::kLength;
  }
  slot.tokens.push_back(sampled.token);
  slot.ended = sampled.finish != FinishReason::kNone;
  output.sampled.push_back(std::move(sampled));
}

}  // namespace baton
