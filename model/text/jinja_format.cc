#include "model/text/jinja_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

constexpr int64_t kWidthMax = 10'000;  // of one formatted field

// One %-conversion: %[(key)][flags][width][.precision]letter
struct Conversion {
  std::string key;
  bool has_key = false, is_left = false, has_sign = false, has_blank = false, is_alternate = false,
       is_zero_padded = false;
  int64_t width = 0, precision = -1;
  char letter = 's';
};

// Hands out the values to the right of % one by one, or by key.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& values) : values_(values) {
    const Sequence* sequence = values.sequence();
    tuple_ = sequence && sequence->kind == SequenceKind::kTuple ? sequence : nullptr;
  }

  const Value& next() {
    if (tuple_ ? used_ < tuple_->items.size() : used_ == 0) {
      return tuple_ ? tuple_->items[used_++] : (++used_, values_);
    }
    throw RenderError("not enough arguments for format string");
  }
  const Value& keyed(const std::string& key) {
    const Dict* dict = values_.dict();
    if (!dict) throw RenderError("format requires a mapping");
    used_ = 1;
    const Value* found = dict->find(key);
    if (!found) throw RenderError("'" + key + "'");
    return *found;
  }
  void check_all_used() const {
    const bool is_complete = tuple_ ? used_ == tuple_->items.size() : used_ > 0 || values_.dict();
    if (!is_complete) {
      throw RenderError("not all arguments converted during string formatting");
    }
  }

 private:
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  size_t used_ = 0;
};

int64_t parse_count(std::string_view format, size_t& at, PercentArguments& arguments) {
  if (at < format.size() && format[at] == '*') {
    ++at;
    const auto given = as_integer(arguments.next());
    if (!given) throw RenderError("* wants int");
    return static_cast<int64_t>(std::clamp<Integer>(*given, 0, kWidthMax));
  }
  int64_t count = 0;
  for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
    count = count * 10 + (format[at] - '0');
    if (count > kWidthMax) throw RenderError("format width is above 10000");
  }
  return count;
}

Conversion parse_conversion(std::string_view format, size_t& at, PercentArguments& arguments) {
  Conversion c;
  if (at < format.size() && format[at] == '(') {
    const size_t end = format.find(')', at);
    if (end == std::string_view::npos) throw RenderError("incomplete format key");
    c.key = std::string(format.substr(at + 1, end - at - 1));
    c.has_key = true;
    at = end + 1;
  }
  for (; at < format.size(); ++at) {
    if (format[at] == '-')
      c.is_left = true;
    else if (format[at] == '+')
      c.has_sign = true;
    else if (format[at] == ' ')
      c.has_blank = true;
    else if (format[at] == '#')
      c.is_alternate = true;
    else if (format[at] == '0')
      c.is_zero_padded = true;
    else
      break;
  }
  c.width = parse_count(format, at, arguments);
  if (at < format.size() && format[at] == '.') c.precision = parse_count(format, ++at, arguments);
  if (at >= format.size()) throw RenderError("incomplete format");
  c.letter = format[at++];
  return c;
}

void append_field(TextBuilder& out, const Conversion& c, const MarkedText& text) {
  const auto missing = c.width - static_cast<int64_t>(code_point_count(text.bytes));
  const std::string blanks(static_cast<size_t>(std::max<int64_t>(0, missing)), ' ');
  if (!c.is_left) out.append(blanks);
  out.append(text);
  if (c.is_left) out.append(blanks);
}

MarkedText text_conversion(RenderContext& context, const Conversion& c, const Value& value) {
  MarkedText text;
  if (c.letter == 's') {
    text = to_text(context, value);
  } else {
    TextBuilder out(context);
    append_repr(out, value);
    text = out.take();
  }
  if (c.precision < 0) return text;
  return text.slice(0, code_point_offset(text.bytes, static_cast<size_t>(c.precision)));
}

std::string sign_of(const Conversion& c, bool is_negative) {
  return is_negative ? "-" : c.has_sign ? "+" : c.has_blank ? " " : "";
}

// Sign, then zeros up to the width where asked for, then digits.
MarkedText number_field(const Conversion& c, std::string sign, const std::string& digits) {
  const auto used = static_cast<int64_t>(sign.size() + digits.size());
  if (c.is_zero_padded && !c.is_left && used < c.width) {
    sign.append(static_cast<size_t>(c.width - used), '0');
  }
  MarkedText text;
  text.bytes = sign + digits;
  return text;
}

MarkedText integer_conversion(const Conversion& c, const Value& value) {
  const auto number = as_number(value);
  if (!number) {
    throw RenderError(std::string("%") + c.letter + " format: a real number is required, not " +
                      type_name(value));
  }
  const Integer integer = value.is<double>() ? static_cast<Integer>(*number) : *as_integer(value);
  std::string digits = integer_digits(integer, c.letter);
  const auto given = static_cast<int64_t>(digits.size());
  if (given < c.precision) digits.insert(0, static_cast<size_t>(c.precision - given), '0');
  std::string sign = sign_of(c, integer < 0);
  if (c.is_alternate && c.letter != 'd') sign += std::string("0") + c.letter;
  return number_field(c, sign, digits);
}

MarkedText float_conversion(const Conversion& c, const Value& value) {
  const auto number = as_number(value);
  if (!number) throw RenderError("must be real number, not " + type_name(value));
  const bool is_negative = std::signbit(*number);
  const int64_t precision = c.precision < 0 ? 6 : c.precision;
  return number_field(c, sign_of(c, is_negative),
                      float_digits(std::fabs(*number), c.letter, precision, c.is_alternate));
}

MarkedText character_conversion(const Value& value) {
  if (const Text* text = value.text(); text && code_point_count(text->text.bytes) == 1) {
    return text->text;
  }
  const auto code = as_integer(value);
  if (!code || *code < 0 || *code > 0x10ffff) throw RenderError("%c requires int or char");
  MarkedText text;
  append_code_point(text.bytes, static_cast<int32_t>(*code));
  return text;
}

MarkedText convert(RenderContext& context, const Conversion& c, const Value& value) {
  switch (c.letter) {
    case 's':
    case 'r':
    case 'a':
      return text_conversion(context, c, value);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return integer_conversion(c, value);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return float_conversion(c, value);
    case 'c':
      return character_conversion(value);
    default:
      throw RenderError(std::string("unsupported format character '") + c.letter + "'");
  }
}

}  // namespace

std::string integer_digits(Integer value, char letter) {
  std::string digits = letter == 'x' || letter == 'X' ? digits_in_base(value, 16)
                       : letter == 'o'                ? digits_in_base(value, 8)
                       : letter == 'b'                ? digits_in_base(value, 2)
                                                      : digits_in_base(value, 10);
  if (letter == 'X') std::transform(digits.begin(), digits.end(), digits.begin(), ::toupper);
  return digits;
}

std::string float_digits(double value, char letter, int64_t precision, bool is_alternate) {
  const char format[] = {'%', is_alternate ? '#' : '0', '.', '*', letter, '\0'};
  const int size = std::snprintf(nullptr, 0, format, static_cast<int>(precision), value);
  std::string digits(static_cast<size_t>(size), '\0');
  std::snprintf(digits.data(), digits.size() + 1, format, static_cast<int>(precision), value);
  return digits;
}

Value format_percent(RenderContext& context, const Text& format, const Value& values) {
  const MarkedText& source = format.text;
  const std::string_view bytes = source.bytes;
  PercentArguments arguments(values);
  TextBuilder out(context);
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append(source, at, percent);
    at = percent + 1;
    if (percent == bytes.size()) break;
    const Conversion c = parse_conversion(bytes, at, arguments);
    if (c.letter == '%') {
      out.append("%");
      continue;
    }
    const Value& value = c.has_key ? arguments.keyed(c.key) : arguments.next();
    MarkedText text = convert(context, c, value);
    append_field(out, c, format.is_markup ? escape_html(context, text) : text);
  }
  arguments.check_all_used();
  return out.finish(format.is_markup);
}

MarkedText escape_html(RenderContext& context, const MarkedText& text) {
  TextBuilder out(context);
  for_each_run(text, [&](std::string_view run, bool from_user) {
    for (const char& c : run) {
      switch (c) {
        case '&':
          out.append("&amp;", from_user);
          break;
        case '<':
          out.append("&lt;", from_user);
          break;
        case '>':
          out.append("&gt;", from_user);
          break;
        case '\'':
          out.append("&#39;", from_user);
          break;
        case '"':
          out.append("&#34;", from_user);
          break;
        default:
          out.append(std::string_view(&c, 1), from_user);
      }
    }
  });
  return out.take();
}

}  // namespace baton::jinja
