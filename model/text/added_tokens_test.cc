#include "model/text/added_tokens.h"

#include "tests/doctest.h"

namespace baton {
namespace {

AddedToken token(int32_t id, const std::string& content, bool special = false) {
  AddedToken added;
  added.id = id;
  added.content = content;
  added.special = special;
  return added;
}

// "text|<7>|text": pieces joined by bars, tokens as their ids.
std::string split(const std::vector<AddedToken>& tokens, std::string_view text,
                  const std::vector<ByteRange>& literal = {}) {
  std::vector<TextPiece> pieces;
  AddedTokenFinder(tokens).split(text, literal, &pieces);
  std::string shown;
  for (const TextPiece& piece : pieces) {
    if (!shown.empty()) shown += "|";
    const auto part = text.substr(piece.range.begin, piece.range.end - piece.range.begin);
    shown += piece.id < 0 ? std::string(part) : std::to_string(piece.id);
  }
  return shown;
}

TEST_CASE("the leftmost, then the longest token is found") {
  const std::vector<AddedToken> tokens = {token(1, "<a>"), token(2, "<a><b>"), token(3, "a><")};
  CHECK_EQ(split(tokens, "x<a>y"), "x|1|y");
  CHECK_EQ(split(tokens, "<a><b><a><"), "2|1|<");
  CHECK_EQ(split(tokens, "<a"), "<a");
  CHECK_EQ(split(tokens, ""), "");
  CHECK_EQ(split({}, "<a>"), "<a>");
}

TEST_CASE("a single word stands alone, by Unicode's word characters") {
  std::vector<AddedToken> tokens = {token(1, "<m>")};
  tokens[0].single_word = true;
  CHECK_EQ(split(tokens, "<m> a<m> <m>a <m>"), "1| a<m> <m>a |1");
  CHECK_EQ(split(tokens, "\u0301<m>"), "\u0301<m>");
  CHECK_EQ(split(tokens, "-<m>\u200d"), "-<m>\u200d");
}

TEST_CASE("strips take white space, but are no condition") {
  std::vector<AddedToken> tokens = {token(1, "<l>"), token(2, "<r>"), token(3, "\n\n")};
  tokens[0].lstrip = true;
  tokens[1].rstrip = true;
  CHECK_EQ(split(tokens, "a \u3000<l> b<r> \tc<r>d"), "a|1| b|2|c|2|d");
  CHECK_EQ(split(tokens, "a<r>\n\nb"), "a|2|3|b");  // counted twice, as in `tokenizers`
  CHECK_EQ(split(tokens, "\n\n <l>"), "3|1");       // not what the token before has taken
}

TEST_CASE("literal text holds no special token, nor does its boundary") {
  const std::vector<AddedToken> tokens = {token(1, "<|end|>", true), token(2, "<tool>")};
  const std::string text = "<|end|><tool><|end|>";
  CHECK_EQ(split(tokens, text, {{0, 13}}), "<|end|>|2|1");
  CHECK_EQ(split(tokens, text, {{0, 14}}), "<|end|>|2|<|end|>");  // one byte is enough
  CHECK_EQ(split(tokens, text, {{6, 7}}), "<|end|>|2|1");
  CHECK_EQ(split(tokens, text, {{7, 13}}), "1|2|1");
  // A longer special token that is not allowed does not hide a shorter one that is.
  CHECK_EQ(split({token(1, "ab"), token(2, "abc", true)}, "abc", {{2, 3}}), "1|c");
}

TEST_CASE("ranges are clipped to a window") {
  const auto clipped = clip_ranges({{0, 4}, {6, 8}, {9, 12}}, {2, 10});
  REQUIRE_EQ(clipped.size(), 3);
  CHECK_EQ(clipped[0].begin, 0);
  CHECK_EQ(clipped[0].end, 2);
  CHECK_EQ(clipped[2].begin, 7);
  CHECK_EQ(clipped[2].end, 8);
  CHECK(clip_ranges({{0, 4}}, {4, 10}).empty());
}

}  // namespace
}  // namespace baton
