#include "model/text/utf8.h"

#include <utf8proc.h>

#include <cstring>

namespace baton {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Form { kValid, kInvalid, kIncomplete };

struct Sequence {
  Form form;
  int bytes;  // kInvalid: the maximal subpart to replace
};

// Table 3-7 of the Unicode standard: the second byte of E0, ED, F0 and F4 has a narrower range.
Sequence read_sequence(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {Form::kValid, 1};
  int length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {Form::kInvalid, 1};
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return {Form::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Form::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Form::kValid, length};
}

size_t ascii_run(std::string_view text, size_t offset) {
  size_t end = offset;
  uint64_t word;
  while (end + sizeof(word) <= text.size()) {
    std::memcpy(&word, text.data() + end, sizeof(word));
    if (word & 0x8080808080808080u) break;
    end += sizeof(word);
  }
  while (end < text.size() && static_cast<uint8_t>(text[end]) < 0x80) ++end;
  return end - offset;
}

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    offset += ascii_run(text, offset);
    if (offset == text.size()) break;
    const Sequence sequence = read_sequence(text.substr(offset));
    if (sequence.form != Form::kValid) return offset;
    offset += sequence.bytes;
  }
  return std::string_view::npos;
}

CodePoint decode_utf8(std::string_view text, size_t offset) {
  const auto bits = [&](size_t i) { return static_cast<char32_t>(text[offset + i] & 0x3F); };
  const auto first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {static_cast<char32_t>(first & 0x1F) << 6 | bits(1), 2};
  if (first < 0xF0) {
    return {static_cast<char32_t>(first & 0x0F) << 12 | bits(1) << 6 | bits(2), 3};
  }
  return {static_cast<char32_t>(first & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3), 4};
}

CodePoint decode_utf8_before(std::string_view text, size_t offset) {
  size_t begin = offset - 1;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  return decode_utf8(text, begin);
}

void append_utf8(std::string* out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
    return;
  }
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

size_t append_lossy_utf8(std::string_view bytes, bool is_end, std::string* out) {
  size_t offset = 0;
  while (offset < bytes.size()) {
    const size_t ascii = ascii_run(bytes, offset);
    out->append(bytes.substr(offset, ascii));
    offset += ascii;
    if (offset == bytes.size()) break;
    const Sequence sequence = read_sequence(bytes.substr(offset));
    if (sequence.form == Form::kIncomplete && !is_end) break;
    out->append(sequence.form == Form::kValid ? bytes.substr(offset, sequence.bytes)
                                              : kReplacement);
    offset += sequence.bytes;
  }
  return offset;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;  // Join_Control
  // Other_Alphabetic holds, beside letters, marks and numbers, these circled and squared letters.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)) {
    return true;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace baton
