#include "model/text/utf8.h"

#include "model/text/normalizer.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::string lossy(std::string_view bytes) {
  std::string text;
  CHECK_EQ(append_lossy_utf8(bytes, true, &text), bytes.size());
  return text;
}

std::string nfc(std::string_view text, std::vector<ByteRange> ranges = {}) {
  return to_nfc(text, &ranges);
}

std::vector<ByteRange> moved(std::string_view text, std::vector<ByteRange> ranges) {
  to_nfc(text, &ranges);
  return ranges;
}

TEST_CASE("invalid UTF-8 is found where it begins") {
  CHECK_EQ(find_invalid_utf8("plain ascii of some length"), std::string_view::npos);
  CHECK_EQ(find_invalid_utf8("\u00e9\u4e2d\U0001f600"), std::string_view::npos);
  CHECK_EQ(find_invalid_utf8("abcdefghij\x80"), 10);
  CHECK_EQ(find_invalid_utf8("a\xC0\x80"), 1);          // overlong
  CHECK_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1);      // surrogate
  CHECK_EQ(find_invalid_utf8("a\xF4\x90\x80\x80"), 1);  // above U+10FFFF
  CHECK_EQ(find_invalid_utf8("ab\xE4\xB8"), 2);         // cut off
}

TEST_CASE("each maximal ill-formed subpart becomes one U+FFFD") {
  CHECK_EQ(lossy("a\xE4\xB8z"), "a\uFFFDz");
  CHECK_EQ(lossy("\xF0\x9F\x98"), "\uFFFD");
  CHECK_EQ(lossy("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");  // E0 cannot be followed by 80
  CHECK_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  CHECK_EQ(lossy("\xF0\x9F\xF0\x9F\x98\x80"), "\uFFFD\U0001f600");
  CHECK_EQ(lossy("\xFF\xC3\xA9"), "\uFFFD\u00e9");
}

TEST_CASE("an incomplete end waits, an impossible one does not") {
  std::string text;
  CHECK_EQ(append_lossy_utf8("a\xE4\xB8", false, &text), 1);
  CHECK_EQ(text, "a");
  CHECK_EQ(append_lossy_utf8("\xE4\xFF", false, &text), 2);
  CHECK_EQ(text, "a\uFFFD\uFFFD");
}

TEST_CASE("code points go both ways") {
  for (const char32_t c : {U'a', U'\u00e9', U'\u4e2d', U'\U0001f600', U'\U0010ffff'}) {
    std::string text = "x";
    append_utf8(&text, c);
    CHECK_EQ(decode_utf8(text, 1).value, c);
    CHECK_EQ(decode_utf8_before(text, text.size()).value, c);
    CHECK_EQ(static_cast<size_t>(decode_utf8(text, 1).bytes), text.size() - 1);
  }
}

TEST_CASE("NFC composes, reorders and leaves the rest") {
  CHECK_EQ(nfc("cafe\u0301 \u212b"), "caf\u00e9 \u00c5");
  CHECK_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  CHECK_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  CHECK_EQ(nfc("\u0958"), "\u0915\u093c");  // a composition exclusion
  CHECK_EQ(nfc("\u0301a"), "\u0301a");
  const std::string_view with_nul("a\0e\u0301", 5);
  CHECK_EQ(nfc(with_nul), std::string_view("a\0\u00e9", 4));
  CHECK_EQ(nfc(""), "");
}

TEST_CASE("NFC moves ranges along and grows them over what is composed") {
  // "e" + U+0301 (2 bytes) becomes 2 bytes.
  auto ranges = moved("e\u0301xyz", {{4, 5}});
  CHECK_EQ(ranges[0].begin, 3);
  CHECK_EQ(ranges[0].end, 4);
  ranges = moved("abe\u0301", {{3, 5}});  // begins between the letter and its mark
  CHECK_EQ(ranges[0].begin, 2);
  CHECK_EQ(ranges[0].end, 4);
  ranges = moved("abe\u0301", {{0, 3}});  // ends there
  CHECK_EQ(ranges[0].end, 4);
  ranges = moved("plain", {{1, 2}, {4, 5}});
  CHECK_EQ(ranges[1].begin, 4);
}

TEST_CASE("white space and word characters are those of Unicode") {
  CHECK(is_white_space(0x85));
  CHECK(is_white_space(0x3000));
  CHECK_FALSE(is_white_space(0x180E));
  CHECK_FALSE(is_white_space(0x200B));
  CHECK(is_word_character(U'\u0301'));
  CHECK(is_word_character(U'_'));
  CHECK(is_word_character(0x24B6));
  CHECK(is_word_character(0x200D));
  CHECK_FALSE(is_word_character(0xBD));  // one half: a number, but not \w
}

}  // namespace
}  // namespace baton
