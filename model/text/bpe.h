// Byte pair encoding of single words over the byte-level alphabet. Called by the tokeniser.
// Immutable after construction; thread-safe (memory of a call is in BpeScratch).
// Semantics: Hugging Face `tokenizers`, models/bpe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

struct BpeVocab {
  std::vector<std::string>
      tokens;  // by id, in the byte-level alphabet; "" where an id has no token
  std::vector<std::pair<std::string, std::string>> merges;  // the first has the highest priority
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // <0xNN> for characters that are no tokens
  bool fuse_unknown = false;   // neighbouring unknown characters are one unknown token
  std::optional<std::string> unknown_token;
  // Tokens that ignore_merges never gives: text must not become a control token by its look.
  std::vector<int32_t> control_ids;
};

struct BpeScratch {
  std::vector<int32_t> ids, ranks;
  std::vector<int32_t> previous, next;
};

class Bpe {
 public:
  // Throws ConfigError("<subject>: ..."): a merge or the unknown token is not made of tokens.
  Bpe(const BpeVocab& vocab, const std::string& subject);

  // Appends the tokens of `word` (raw bytes, not the byte-level alphabet).
  void encode_word(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  struct MergeSlot {
    uint64_t pair = 0;  // left id << 32 | right id
    int32_t rank = -1;  // -1: free
    int32_t merged = -1;
  };
  struct WordSlot {
    uint64_t hash = 0;
    uint32_t begin = 0, size = 0;  // in word_bytes_
    int32_t id = -1;               // -1: free
  };

  void build_byte_symbols(const BpeVocab& vocab, const std::string& subject);
  void build_merges(const BpeVocab& vocab, const std::string& subject);
  void build_words(const BpeVocab& vocab);
  const MergeSlot* find_merge(int32_t left, int32_t right) const;
  int32_t rank_of(int32_t left, int32_t right) const;
  int32_t find_word(std::string_view word) const;
  void insert_word(std::string_view word, int32_t id);
  void initial_symbols(std::string_view word, std::vector<int32_t>* ids) const;
  void merge_short(BpeScratch* scratch) const;
  void merge_long(BpeScratch* scratch) const;
  void merge_word(std::string_view word, BpeScratch* scratch) const;

  // The tokens of a byte that is alone: its character, or <0xNN> of that character's UTF-8 bytes.
  // Empty: unknown.
  std::array<std::vector<int32_t>, 256> byte_symbols_;
  std::array<bool, 256> byte_is_fallback_{};
  bool all_bytes_known_ = true;
  int32_t unknown_id_ = -1;
  bool fuse_unknown_ = false;

  std::vector<MergeSlot> merges_;  // open addressing, a power of two
  // Words known to be one token: all tokens with ignore_merges, else those that their own merges
  // lead to. Looking a word up here gives what merging would.
  std::vector<WordSlot> words_;
  std::string word_bytes_;
  size_t word_bytes_max_ = 0;  // the longest
};

}  // namespace baton
