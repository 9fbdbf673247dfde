// UTF-8 and the few Unicode properties that the tokeniser needs. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

// The offset of the first byte that is not valid UTF-8 (RFC 3629: no surrogates, no overlong
// forms), or npos.
size_t find_invalid_utf8(std::string_view text);

struct CodePoint {
  char32_t value;
  int bytes;  // 1 to 4
};

// REQUIRES: a valid UTF-8 character begins at `offset`.
CodePoint decode_utf8(std::string_view text, size_t offset);
// The character that ends before `offset`. REQUIRES: valid UTF-8 and offset > 0.
CodePoint decode_utf8_before(std::string_view text, size_t offset);
void append_utf8(std::string* out, char32_t code_point);

// Appends `bytes` to `out`, each maximal ill-formed subpart as one U+FFFD (Unicode 3.9, as Rust's
// and Python's lossy decoding). Returns how many bytes were used: unless `is_end`, an incomplete
// character at the end, which later bytes may complete, is left.
size_t append_lossy_utf8(std::string_view bytes, bool is_end, std::string* out);

bool is_white_space(char32_t code_point);     // property White_Space
bool is_word_character(char32_t code_point);  // UTS #18 annex C \w

}  // namespace baton
