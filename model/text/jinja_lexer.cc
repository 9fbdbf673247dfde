#include "model/text/jinja_lexer.h"

#include <algorithm>

namespace baton::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

std::string with_unix_line_ends(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text_and_tag();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // ---- Outside of tags ----

  void read_text_and_tag() {
    size_t tag = at_;
    while ((tag = source_.find('{', tag)) != npos) {
      if (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != npos) break;
      ++tag;
    }
    if (tag == npos) {
      add_text(source_.substr(at_));
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    add_text(before_tag(source_.substr(at_, tag - at_), has_sign ? sign : ' ', kind != '{'));
    count_lines(tag);
    at_ = tag + (has_sign ? 3 : 2);
    if (kind == '#') {
      skip_comment();
    } else if (kind == '%' && is_raw_tag()) {
      read_raw();
    } else {
      add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
      read_tag(kind == '{' ? '}' : '%');
    }
  }

  // What is left of the text in front of a tag: {%- takes all white space, lstrip_blocks the blanks
  // of the tag's own line.
  std::string_view before_tag(std::string_view text, char sign, bool is_block) const {
    if (sign == '-') return text.substr(0, skip_space_back(text));
    if (sign == '+' || !is_block) return text;
    const size_t newline = text.rfind('\n');
    if (newline == npos && !at_line_start_) return text;
    const size_t line = newline == npos ? 0 : newline + 1;
    return skip_space(text, line) == text.size() ? text.substr(0, line) : text;
  }

  // Moves behind the end of a tag: -%} takes all white space that follows, trim_blocks one line
  // end.
  void end_tag(size_t end, char sign, bool trims_newline) {
    size_t next = end;
    if (sign == '-') {
      next = skip_space(source_, end);
    } else if (sign != '+' && trims_newline && end < source_.size() && source_[end] == '\n') {
      next = end + 1;
    }
    count_lines(next);
    at_ = next;
    at_line_start_ = source_[next - 1] == '\n';
  }

  void skip_comment() {
    // The sign in front of a short comment's end may be the one behind its start: {#-#}.
    const size_t end = source_.find("#}", at_);
    if (end == npos) throw SyntaxError(line_, "Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    end_tag(end + 2, sign, true);
  }

  bool is_raw_tag() const {
    const size_t word = skip_space(source_, at_);
    if (source_.substr(word, 3) != "raw") return false;
    const size_t end = skip_space(source_, word + 3);
    return source_.substr(end, 2) == "%}" || source_.substr(end, 3) == "-%}";
  }

  void read_raw() {
    const size_t begin_end = source_.find("%}", at_);
    end_tag(begin_end + 2, source_[begin_end - 1] == '-' ? '-' : '+', false);
    for (size_t tag = source_.find("{%", at_); tag != npos; tag = source_.find("{%", tag + 2)) {
      size_t word = tag + 2;
      const char sign = word < source_.size() ? source_[word] : ' ';
      if (sign == '-' || sign == '+') ++word;
      word = skip_space(source_, word);
      if (source_.substr(word, 6) != "endraw") continue;
      size_t end = skip_space(source_, word + 6);
      const char end_sign = end < source_.size() ? source_[end] : ' ';
      if (end_sign == '-' || end_sign == '+') ++end;
      if (source_.substr(end, 2) != "%}") continue;
      add_text(before_tag(source_.substr(at_, tag - at_), sign, true));
      end_tag(end + 2, end_sign, true);
      return;
    }
    throw SyntaxError(line_, "Missing end of raw directive");
  }

  // ---- Inside of tags ----

  void read_tag(char closing) {
    size_t open_brackets = 0;
    while (true) {
      const size_t next = skip_space(source_, at_);
      count_lines(next);
      at_ = next;
      if (at_ >= source_.size())
        throw SyntaxError(line_, "unexpected end of template inside a tag");
      if (open_brackets == 0 && read_tag_end(closing)) return;
      const char c = source_[at_];
      if (is_name_start(c)) {
        read_name();
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        read_string();
      } else {
        read_operator(open_brackets);
      }
    }
  }

  bool read_tag_end(char closing) {
    const char sign = source_[at_];
    const bool has_sign = sign == '-' || (sign == '+' && closing == '%');
    const size_t end = at_ + (has_sign ? 1 : 0);
    if (source_.size() < end + 2 || source_[end] != closing || source_[end + 1] != '}')
      return false;
    add(closing == '}' ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    end_tag(end + 2, has_sign ? sign : ' ', closing == '%');
    return true;
  }

  void read_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    add(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
    at_ = end;
  }

  // Digits with single underscores between them, from `at`; the end of them.
  size_t digits_end(size_t at) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void read_number() {
    const char prefix = source_[at_] == '0' && at_ + 1 < source_.size()
                            ? static_cast<char>(source_[at_ + 1] | 0x20)
                            : ' ';
    size_t end = digits_end(at_);
    TokenKind kind = TokenKind::kInteger;
    if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
      end = at_ + 2;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
    } else {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits_end(end + 1);
        kind = TokenKind::kFloat;
      }
      size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e') ++exponent;
      if (exponent > end && exponent < source_.size() &&
          (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent > end && exponent < source_.size() && is_digit(source_[exponent])) {
        end = digits_end(exponent);
        kind = TokenKind::kFloat;
      }
    }
    std::string digits(source_.substr(at_, end - at_));
    std::erase(digits, '_');
    add(kind, std::move(digits));
    at_ = end;
  }

  void read_string();
  void read_escape(std::string& value);
  void read_operator(size_t& open_brackets);

  // ----

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void add_text(std::string_view text) {
    if (!text.empty()) add(TokenKind::kText, std::string(text));
  }
  void count_lines(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    counted_ = to;
  }

  const std::string_view source_;
  size_t at_ = 0;
  bool at_line_start_ = true;  // the text at at_ begins a line
  int line_ = 1;
  size_t counted_ = 0;  // line ends before this are in line_
  std::vector<Token> tokens_;
};

void Lexer::read_string() {
  const char quote = source_[at_];
  std::string value;
  ++at_;
  while (at_ < source_.size() && source_[at_] != quote) {
    if (source_[at_] == '\\') {
      read_escape(value);
    } else {
      value.push_back(source_[at_++]);
    }
  }
  if (at_ >= source_.size()) throw SyntaxError(line_, "unexpected end of string");
  add(TokenKind::kString, std::move(value));
  ++at_;
}

// Python's escapes; an unknown one keeps its backslash.
void Lexer::read_escape(std::string& value) {
  if (at_ + 1 >= source_.size()) throw SyntaxError(line_, "unexpected end of string");
  const char letter = source_[at_ + 1];
  at_ += 2;
  constexpr std::string_view kLetters = "ntrbfva\\'\"\n";
  constexpr std::string_view kMeanings = "\n\t\r\b\f\v\a\\'\"";
  const size_t known = kLetters.find(letter);
  if (known != npos) {
    if (known < kMeanings.size())
      value.push_back(kMeanings[known]);  // backslash, line end: nothing
    return;
  }
  const auto read_digits = [&](size_t count_max, int base) {
    const size_t size = std::min(count_max, source_.size() - at_);
    const std::string digits(source_.substr(at_, size));
    size_t used = 0;
    const bool is_number = !digits.empty() && std::isxdigit(static_cast<unsigned char>(digits[0]));
    const unsigned long code = is_number ? std::stoul(digits, &used, base) : 0;
    at_ += used;
    if (used == 0 || (base == 16 && used < count_max) || code > 0x10ffff) {
      throw SyntaxError(line_, "bad escape in a string");
    }
    append_code_point(value, static_cast<int32_t>(code));
  };
  if (letter == 'x') return read_digits(2, 16);
  if (letter == 'u') return read_digits(4, 16);
  if (letter == 'U') return read_digits(8, 16);
  if (letter >= '0' && letter <= '7') {
    --at_;
    return read_digits(3, 8);
  }
  value.push_back('\\');
  value.push_back(letter);
}

void Lexer::read_operator(size_t& open_brackets) {
  constexpr std::string_view kTwo[] = {"==", "!=", ">=", "<=", "//", "**"};
  const std::string_view two = source_.substr(at_, 2);
  if (std::find(std::begin(kTwo), std::end(kTwo), two) != std::end(kTwo)) {
    add(TokenKind::kOperator, std::string(two));
    at_ += 2;
    return;
  }
  const char c = source_[at_];
  if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == npos) {
    throw SyntaxError(line_, std::string("unexpected char '") + c + "'");
  }
  if (c == '(' || c == '[' || c == '{') ++open_brackets;
  if (c == ')' || c == ']' || c == '}') {
    if (open_brackets == 0) throw SyntaxError(line_, std::string("unexpected '") + c + "'");
    --open_brackets;
  }
  add(TokenKind::kOperator, std::string(1, c));
  ++at_;
}

}  // namespace

std::vector<Token> tokenize(std::string source) {
  source = with_unix_line_ends(source);
  if (source.ends_with('\n')) source.pop_back();  // keep_trailing_newline is off
  return Lexer(source).run();
}

}  // namespace baton::jinja
