// translate_regex of regex.h: from Oniguruma's Ruby syntax to PCRE2's. Only what both engines read
// alike, or what is rewritten here, passes.
// Sources: Oniguruma doc/RE, pcre2pattern(3).
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

#include "model/text/regex.h"

namespace baton {
namespace {

// PCRE2's own \s also holds U+180E, which has not been white space since Unicode 6.3.
constexpr std::string_view kSpaces =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"
    "\\x{205F}\\x{3000}";
constexpr std::string_view kNotSpaces =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-"
    "\\x{10FFFF}";
// Below U+0100 Oniguruma goes by ISO 8859-1, where superscripts and fractions are word characters.
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

// Scripts: PCRE2 would otherwise also take script extensions.
constexpr std::array<std::string_view, 12> kScripts = {
    "Arabic", "Bengali", "Cyrillic", "Devanagari", "Greek", "Han",
    "Hangul", "Hebrew",  "Hiragana", "Katakana",   "Latin", "Thai"};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& subject)
      : pattern_(pattern), subject_(subject) {}

  std::string run() {
    out_ = "(*LF)";  // "." stops at \n alone
    while (offset_ < pattern_.size()) {
      const char c = pattern_[offset_];
      if (c == '\\') {
        escape(/*in_class=*/false);
      } else if (c == '[') {
        character_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        repeat();
      } else {
        out_.push_back(c);
        ++offset_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view construct, const char* want) const {
    throw ConfigError(subject_ + ": got \"" + std::string(construct) + "\" in \"" +
                      std::string(pattern_) + "\", want " + want);
  }

  bool next_is(std::string_view text) const { return pattern_.substr(offset_).starts_with(text); }

  void copy(size_t count) {
    out_.append(pattern_.substr(offset_, count));
    offset_ += count;
  }

  void replace(size_t count, std::string_view replacement) {
    offset_ += count;
    out_.append(replacement);
  }

  void put_set(std::string_view open, std::string_view members, bool in_class) {
    if (in_class) {
      replace(2, members);
    } else {
      replace(2, std::string(open) + std::string(members) + "]");
    }
  }

  void escape(bool in_class) {
    if (offset_ + 1 == pattern_.size()) fail("\\", "a character after the backslash");
    const char c = pattern_[offset_ + 1];
    const auto is_in = [c](const char* set) { return std::strchr(set, c) != nullptr; };
    if (c == 's') return put_set("[", kSpaces, in_class);
    if (c == 'S') return in_class ? put_set("", kNotSpaces, true) : put_set("[^", kSpaces, false);
    if (c == 'w') return put_set("[", kWord, in_class);
    if (c == 'W' && !in_class) return put_set("[^", kWord, false);
    if (c == 'v') return replace(2, "\\x{B}");
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return code_point();
    const bool is_punctuation = static_cast<uint8_t>(c) < 0x80 && std::ispunct(c);
    if (is_punctuation || is_in("dDnrtf")) return copy(2);
    fail(pattern_.substr(offset_, 2),
         "one of \\s \\S \\w \\W \\d \\D \\p \\P \\n \\r \\t \\f \\v \\x \\u or punctuation");
  }

  void property() {
    const size_t close = pattern_.find('}', offset_);
    if (offset_ + 2 >= pattern_.size() || pattern_[offset_ + 2] != '{' ||
        close == std::string_view::npos) {
      fail(pattern_.substr(offset_, 3), "a property in braces, as \\p{L}");
    }
    const std::string_view whole = pattern_.substr(offset_, close + 1 - offset_);
    std::string_view name = whole.substr(3, whole.size() - 4);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const bool is_category = !name.empty() && name.size() <= 2 && name != "L&" &&
                             std::strchr("CLMNPSZ", name[0]) != nullptr;
    bool is_script = false;
    for (const std::string_view script : kScripts) is_script = is_script || script == name;
    if (!is_category && !is_script)
      fail(whole, "a general category (L, Nd, ...) or a common script");
    out_.append(whole.substr(0, 3)).append(negated ? "^" : "");
    out_.append(is_script ? "sc:" : "").append(name).append("}");
    offset_ = close + 1;
  }

  // \xHH, \x{H...} and \uHHHH
  void code_point() {
    const bool braces = pattern_.substr(offset_ + 2).starts_with('{');
    const size_t begin = offset_ + 2 + braces;
    size_t end = begin;
    while (end < pattern_.size() && std::isxdigit(static_cast<uint8_t>(pattern_[end]))) ++end;
    const bool is_u = pattern_[offset_ + 1] == 'u';
    if (!braces) end = std::min(end, begin + (is_u ? 4 : 2));
    const bool closed = !braces || pattern_.substr(end).starts_with('}');
    if (!closed || end == begin || (is_u && (braces || end - begin != 4))) {
      fail(pattern_.substr(offset_, 4), "\\xHH, \\x{H...} or \\uHHHH");
    }
    out_.append("\\x{").append(pattern_.substr(begin, end - begin)).append("}");
    offset_ = end + braces;
  }

  void character_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) fail("[]", "\\] for a bracket inside a class");
    while (!next_is("]")) {
      if (offset_ == pattern_.size()) fail("[", "the class's closing bracket");
      if (next_is("[")) fail("[ inside a class", "\\[, or a class without nested classes");
      if (next_is("&&")) fail("&&", "a class without intersections");
      if (next_is("\\")) {
        escape(/*in_class=*/true);
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  void group() {
    if (next_is("(*")) fail("(*", "a group without PCRE2 verbs");
    if (next_is("(?")) {
      bool known = false;
      for (const std::string_view opening :
           {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"}) {
        if (!next_is(opening)) continue;
        copy(opening.size());
        known = true;
        break;
      }
      if (!known) fail(pattern_.substr(offset_, 4), "(?: (?= (?! (?<= (?<! (?> (?i: or (?i)");
      return;
    }
    copy(1);
  }

  void repeat() {
    const size_t close = pattern_.find('}', offset_);
    if (close == std::string_view::npos) fail("{", "a closing brace");
    const std::string_view whole = pattern_.substr(offset_, close + 1 - offset_);
    const bool starts_with_digit = std::isdigit(static_cast<uint8_t>(whole[1]));
    const bool only_numbers =
        whole.find_first_not_of("0123456789,", 1) == whole.size() - 1 && starts_with_digit;
    if (!only_numbers) fail(whole, "{n}, {n,} or {n,m}");
    copy(whole.size());
    if (next_is("+"))
      fail(std::string(whole) + "+", "no second repeat, which the engines read differently");
  }

  const std::string_view pattern_;
  const std::string& subject_;
  std::string out_;
  size_t offset_ = 0;
};

}  // namespace

std::string translate_regex(std::string_view pattern, const std::string& subject) {
  return Translator(pattern, subject).run();
}

}  // namespace baton
