#include "model/text/bpe.h"

#include <bit>
#include <limits>
#include <queue>
#include <unordered_map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/status.h"
#include "model/text/byte_level.h"

namespace baton {
namespace {

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();
constexpr size_t kShortWordSymbols = 48;  // up to here scanning all pairs beats a queue

using TokenIds = std::unordered_map<std::string_view, int32_t>;

TokenIds index_tokens(const std::vector<std::string>& tokens) {
  TokenIds ids;
  ids.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids.emplace(tokens[id], static_cast<int32_t>(id));
  }
  return ids;
}

int32_t find_token(const TokenIds& ids, std::string_view token) {
  const auto found = ids.find(token);
  return found == ids.end() ? -1 : found->second;
}

std::string byte_token(uint8_t byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t pair_hash(uint64_t pair) {
  const uint64_t product = pair * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(product ^ product >> 32);
}

size_t table_size(size_t entries) {
  return std::bit_ceil(2 * entries + 1);
}

}  // namespace

Bpe::Bpe(const BpeVocab& vocab, const std::string& subject) : fuse_unknown_(vocab.fuse_unknown) {
  build_byte_symbols(vocab, subject);
  build_merges(vocab, subject);
  build_words(vocab);
}

void Bpe::build_byte_symbols(const BpeVocab& vocab, const std::string& subject) {
  const TokenIds ids = index_tokens(vocab.tokens);
  if (vocab.unknown_token) {
    unknown_id_ = find_token(ids, *vocab.unknown_token);
    if (unknown_id_ < 0) {
      throw ConfigError(subject + ": unk_token: got \"" + *vocab.unknown_token +
                        "\", which is not in the vocabulary, want one of its tokens");
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    const std::string character = to_byte_level({&raw, 1});
    const int32_t id = find_token(ids, character);
    std::vector<int32_t>& symbols = byte_symbols_[byte];
    if (id >= 0) {
      symbols = {id};
      continue;
    }
    all_bytes_known_ = false;
    if (!vocab.byte_fallback) continue;
    for (const char part : character) {
      const int32_t part_id = find_token(ids, byte_token(static_cast<uint8_t>(part)));
      if (part_id >= 0) symbols.push_back(part_id);
    }
    if (symbols.size() != character.size()) symbols.clear();
    byte_is_fallback_[byte] = !symbols.empty();
  }
}

void Bpe::build_merges(const BpeVocab& vocab, const std::string& subject) {
  const TokenIds ids = index_tokens(vocab.tokens);
  merges_.resize(table_size(vocab.merges.size()));
  for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
    const auto& [left, right] = vocab.merges[rank];
    const std::string merged = left + right;
    for (const std::string& token : {left, right, merged}) {
      if (find_token(ids, token) >= 0) continue;
      throw ConfigError(subject + ": merges[" + std::to_string(rank) + "]: got \"" + left +
                        "\" and \"" + right + "\", but \"" + token +
                        "\" is not in the vocabulary, want merges of tokens into tokens");
    }
    const uint64_t pair = pair_key(find_token(ids, left), find_token(ids, right));
    size_t slot = pair_hash(pair) & (merges_.size() - 1);
    while (merges_[slot].rank >= 0 && merges_[slot].pair != pair) {
      slot = (slot + 1) & (merges_.size() - 1);
    }
    // Of equal merges the last counts, as in `tokenizers`.
    merges_[slot] = {pair, static_cast<int32_t>(rank), find_token(ids, merged)};
  }
}

void Bpe::build_words(const BpeVocab& vocab) {
  words_.resize(table_size(vocab.tokens.size()));
  BpeScratch scratch;
  std::vector<bool> is_control(vocab.tokens.size());
  for (const int32_t id : vocab.control_ids) is_control.at(id) = true;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.ignore_merges && is_control[id]) continue;
    const std::optional<std::string> word = from_byte_level(vocab.tokens[id]);
    if (!word || word->empty()) continue;
    if (!vocab.ignore_merges) {
      merge_word(*word, &scratch);
      if (scratch.ids != std::vector<int32_t>{static_cast<int32_t>(id)}) continue;
    }
    insert_word(*word, static_cast<int32_t>(id));
  }
}

const Bpe::MergeSlot* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  size_t slot = pair_hash(pair) & (merges_.size() - 1);
  while (merges_[slot].rank >= 0) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    slot = (slot + 1) & (merges_.size() - 1);
  }
  return nullptr;
}

int32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const MergeSlot* merge = find_merge(left, right);
  return merge ? merge->rank : kNoRank;
}

void Bpe::insert_word(std::string_view word, int32_t id) {
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  size_t slot = hash & (words_.size() - 1);
  while (words_[slot].id >= 0) slot = (slot + 1) & (words_.size() - 1);
  words_[slot] = {hash, static_cast<uint32_t>(word_bytes_.size()),
                  static_cast<uint32_t>(word.size()), id};
  word_bytes_.append(word);
  word_bytes_max_ = std::max(word_bytes_max_, word.size());
}

int32_t Bpe::find_word(std::string_view word) const {
  if (word.size() > word_bytes_max_) return -1;
  const uint64_t hash = XXH3_64bits(word.data(), word.size());
  size_t slot = hash & (words_.size() - 1);
  while (words_[slot].id >= 0) {
    const WordSlot& entry = words_[slot];
    const auto bytes = std::string_view(word_bytes_).substr(entry.begin, entry.size);
    if (entry.hash == hash && bytes == word) return entry.id;
    slot = (slot + 1) & (words_.size() - 1);
  }
  return -1;
}

void Bpe::initial_symbols(std::string_view word, std::vector<int32_t>* ids) const {
  ids->clear();
  if (all_bytes_known_) {
    for (const char byte : word) ids->push_back(byte_symbols_[static_cast<uint8_t>(byte)][0]);
    return;
  }
  bool unknown_pending = false;
  for (const char c : word) {
    const auto byte = static_cast<uint8_t>(c);
    const std::vector<int32_t>& symbols = byte_symbols_[byte];
    if (!symbols.empty()) {
      // `tokenizers` puts a pending unknown token behind fallback bytes; files with both are rare,
      // but equal is equal.
      if (unknown_pending && !byte_is_fallback_[byte]) {
        ids->push_back(unknown_id_);
        unknown_pending = false;
      }
      ids->insert(ids->end(), symbols.begin(), symbols.end());
    } else if (unknown_id_ >= 0) {
      if (unknown_pending && !fuse_unknown_) ids->push_back(unknown_id_);
      unknown_pending = true;
    }
  }
  if (unknown_pending) ids->push_back(unknown_id_);
}

// Merges the best pair, leftmost of equals, until none is left.
void Bpe::merge_short(BpeScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<int32_t>& ranks = scratch->ranks;  // ranks[i]: of ids[i] with ids[i + 1]
  size_t count = ids.size();
  ranks.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    ids[best] = find_merge(ids[best], ids[best + 1])->merged;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
    }
    --count;
    if (best > 0) ranks[best - 1] = rank_of(ids[best - 1], ids[best]);
    if (best + 1 < count) ranks[best] = rank_of(ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

// The same with a queue and a linked list: n log n for words of any length.
void Bpe::merge_long(BpeScratch* scratch) const {
  struct Candidate {
    int32_t rank, position, left, right;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  constexpr int32_t kMergedAway = -1;
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<int32_t>& previous = scratch->previous;
  std::vector<int32_t>& next = scratch->next;
  const auto count = static_cast<int32_t>(ids.size());
  previous.resize(count);
  next.resize(count);
  std::vector<Candidate> heap;
  heap.reserve(count);
  std::priority_queue<Candidate> queue({}, std::move(heap));
  const auto consider = [&](int32_t position) {
    if (position < 0 || next[position] == count) return;
    const int32_t left = ids[position], right = ids[next[position]];
    const int32_t rank = rank_of(left, right);
    if (rank != kNoRank) queue.push({rank, position, left, right});
  };
  for (int32_t i = 0; i < count; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1;
  }
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const int32_t right = ids[best.position] == best.left ? next[best.position] : count;
    if (right == count || ids[right] != best.right) continue;  // one of the two has changed since
    ids[best.position] = find_merge(best.left, best.right)->merged;
    ids[right] = kMergedAway;
    next[best.position] = next[right];
    if (next[right] < count) previous[next[right]] = best.position;
    consider(previous[best.position]);
    consider(best.position);
  }
  std::erase(ids, kMergedAway);
}

void Bpe::merge_word(std::string_view word, BpeScratch* scratch) const {
  initial_symbols(word, &scratch->ids);
  if (scratch->ids.size() <= kShortWordSymbols) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
}

void Bpe::encode_word(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  const int32_t id = find_word(word);
  if (id >= 0) {
    ids->push_back(id);
    return;
  }
  merge_word(word, scratch);
  ids->insert(ids->end(), scratch->ids.begin(), scratch->ids.end());
}

}  // namespace baton
