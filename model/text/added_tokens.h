// Finds the added tokens of a vocabulary ("<|im_end|>", ...) in a text, before pre-tokenisation.
// Called by the tokeniser. Immutable after construction; thread-safe.
// Semantics: Hugging Face `tokenizers`, added_vocabulary.rs (leftmost-longest).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/normalizer.h"

namespace baton {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;      // a control token; never found in literal text
  bool single_word = false;  // not beside a word character
  bool lstrip = false;       // takes the white space to its left
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalised text
};

// A part of a text: an added token, or text in between.
struct TextPiece {
  ByteRange range;
  int32_t id = -1;  // -1: text
};

class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Appends the pieces of `text` in order. No special token is found that shares a byte with one of
  // `literal` (ascending, disjoint).
  // A piece may begin before the end of the one before it: blanks taken by rstrip may themselves be
  // the next added token. `tokenizers` counts them twice, so do we.
  void split(std::string_view text, const std::vector<ByteRange>& literal,
             std::vector<TextPiece>* pieces) const;

 private:
  struct Node {
    int32_t token = -1;                                 // index of the token that ends here
    std::vector<std::pair<uint8_t, int32_t>> children;  // byte, node
  };
  struct Match {
    int32_t token = -1;
    size_t end = 0;
  };

  void insert(int32_t token);
  int32_t child(int32_t node, uint8_t byte) const;
  Match longest_at(std::string_view text, size_t begin,
                   const std::vector<ByteRange>& literal) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_token_{};
};

}  // namespace baton
