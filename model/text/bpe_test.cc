#include "model/text/bpe.h"

#include <algorithm>
#include <random>

#include "base/status.h"
#include "model/text/byte_level.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// Bytes a to h as ids 0 to 7, then one token a merge.
BpeVocab letters_vocab(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeVocab vocab;
  for (char c = 'a'; c <= 'h'; ++c) vocab.tokens.push_back(std::string(1, c));
  for (const auto& [left, right] : merges) {
    const std::string merged = left + right;
    if (std::find(vocab.tokens.begin(), vocab.tokens.end(), merged) == vocab.tokens.end()) {
      vocab.tokens.push_back(merged);
    }
  }
  vocab.merges = merges;
  return vocab;
}

std::vector<std::string> split(const BpeVocab& vocab, std::string_view word) {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  Bpe(vocab, "test").encode_word(word, &scratch, &ids);
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(vocab.tokens[id]);
  return tokens;
}

using Tokens = std::vector<std::string>;

// Merging by the definition: the lowest rank, leftmost, until nothing merges.
Tokens merge_naively(const BpeVocab& vocab, std::string_view word) {
  Tokens tokens;
  for (const char c : word) tokens.push_back(std::string(1, c));
  while (true) {
    size_t best_rank = vocab.merges.size(), best = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = std::find(vocab.merges.begin(), vocab.merges.end(),
                                   std::make_pair(tokens[i], tokens[i + 1]));
      const auto rank = static_cast<size_t>(found - vocab.merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == vocab.merges.size()) return tokens;
    tokens[best] += tokens[best + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST_CASE("merges go by rank, not from left to right") {
  CHECK_EQ(split(letters_vocab({{"b", "c"}, {"a", "b"}}), "abc"), Tokens{"a", "bc"});
  CHECK_EQ(split(letters_vocab({{"a", "a"}}), "aaaaa"), Tokens{"aa", "aa", "a"});
}

TEST_CASE("of equal merges the last counts") {
  CHECK_EQ(split(letters_vocab({{"a", "b"}, {"b", "c"}, {"a", "b"}}), "abc"), Tokens{"a", "bc"});
}

TEST_CASE("ignore_merges gives a whole word that merges do not reach, but never a control token") {
  BpeVocab vocab = letters_vocab({{"a", "b"}});
  vocab.tokens.push_back("bad");
  CHECK_EQ(split(vocab, "bad"), Tokens{"b", "a", "d"});
  vocab.ignore_merges = true;
  CHECK_EQ(split(vocab, "bad"), Tokens{"bad"});
  vocab.control_ids = {static_cast<int32_t>(vocab.tokens.size()) - 1};
  CHECK_EQ(split(vocab, "bad"), Tokens{"b", "a", "d"});
}

TEST_CASE("bytes that are no tokens are dropped, unknown, fused or spelled in bytes") {
  BpeVocab vocab = letters_vocab({});
  CHECK_EQ(split(vocab, "axyb"), Tokens{"a", "b"});
  vocab.tokens.push_back("<unk>");
  vocab.unknown_token = "<unk>";
  CHECK_EQ(split(vocab, "axyb"), Tokens{"a", "<unk>", "<unk>", "b"});
  vocab.fuse_unknown = true;
  CHECK_EQ(split(vocab, "axyb"), Tokens{"a", "<unk>", "b"});
  vocab.byte_fallback = true;
  vocab.tokens.push_back("<0x78>");
  CHECK_EQ(split(vocab, "axb"), Tokens{"a", "<0x78>", "b"});
}

TEST_CASE("short and long words are merged as the definition says") {
  const unsigned seed = 7;
  MESSAGE("seed " << seed);
  std::mt19937 random(seed);
  BpeVocab vocab = letters_vocab({});
  for (int i = 0; i < 60; ++i) {  // each merge joins two tokens that exist by then
    const std::string& left = vocab.tokens[random() % vocab.tokens.size()];
    const std::string& right = vocab.tokens[random() % vocab.tokens.size()];
    const std::string merged = left + right;
    if (std::find(vocab.tokens.begin(), vocab.tokens.end(), merged) != vocab.tokens.end()) continue;
    vocab.merges.emplace_back(left, right);
    vocab.tokens.push_back(merged);
  }
  std::shuffle(vocab.merges.begin(), vocab.merges.end(), random);
  for (int i = 0; i < 300; ++i) {
    std::string word(1 + random() % 120, ' ');  // on both sides of the switch to the queue
    for (char& c : word) c = static_cast<char>('a' + random() % 8);
    REQUIRE_EQ(split(vocab, word), merge_naively(vocab, word));
  }
}

TEST_CASE("a word of a megabyte takes n log n") {
  const Tokens tokens = split(letters_vocab({{"a", "a"}, {"aa", "aa"}}), std::string(1 << 20, 'a'));
  CHECK_EQ(tokens.size(), size_t{1 << 18});
}

TEST_CASE("merges and the unknown token must be made of tokens") {
  BpeVocab vocab = letters_vocab({{"a", "b"}});
  vocab.merges.emplace_back("a", "z");
  CHECK_THROWS_WITH_AS(Bpe(vocab, "file"),
                       "file: merges[1]: got \"a\" and \"z\", but \"z\" is not in the vocabulary, "
                       "want merges of tokens into tokens",
                       ConfigError);
  vocab.merges.back() = {"b", "a"};
  CHECK_THROWS_AS(Bpe(vocab, "file"), ConfigError);
  vocab.merges.pop_back();
  vocab.unknown_token = "<unk>";
  CHECK_THROWS_AS(Bpe(vocab, "file"), ConfigError);
}

TEST_CASE("the byte-level alphabet is one to one") {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string raw(1, static_cast<char>(byte));
    CHECK_EQ(from_byte_level(to_byte_level(raw)), raw);
  }
  CHECK_EQ(to_byte_level(" hello\n"), "ĠhelloĊ");
  CHECK_FALSE(from_byte_level("a b").has_value());
  CHECK_FALSE(from_byte_level("\xFF").has_value());
}

}  // namespace
}  // namespace baton
