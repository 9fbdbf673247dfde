// Filters that give numbers.
#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "model/text/jinja_filters.h"
#include "model/text/jinja_format.h"
#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = skip_space(text, 0);
  return text.substr(begin, std::max(begin, skip_space_back(text)) - begin);
}

// int(text, base): blanks around, a sign, a prefix of the base's own, single underscores between
// digits.
std::optional<Integer> parse_integer(std::string_view text, int base) {
  text = trimmed(text);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const char prefix = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : 0;
  const int prefix_base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (prefix_base && (base == 0 || base == prefix_base)) {
    base = prefix_base;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  if (base == 0) base = 10;
  if (text.empty() || text.front() == '_' || text.back() == '_') return std::nullopt;
  Integer value = 0;
  char before = 0;
  for (const char c : text) {
    if (c == '_' && before == '_') return std::nullopt;
    before = c;
    if (c == '_') continue;
    if (digit_value(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Integer{base}, &value) ||
        __builtin_add_overflow(value, Integer{digit_value(c)}, &value)) {
      throw RenderError("integer overflow: numbers have 128 bits here");
    }
  }
  return is_negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  std::string digits;
  for (const char c : trimmed(text)) {
    if (c != '_') digits.push_back(c);
  }
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  double value = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (read.ptr != rest.data() + rest.size() || rest.empty()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) return std::strtod(digits.c_str(), nullptr);
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<Integer> truncated(double value) {
  if (!std::isfinite(value) || std::fabs(value) > 1e38) return std::nullopt;
  return static_cast<Integer>(value);
}

Value filter_int(Call& call) {
  const auto bound = call.bind({"default", "base"});
  if (call.self.undefined()) throw_undefined(*call.self.undefined());
  const Integer base = integer_argument(call, bound[1], 10);
  if (base != 0 && (base < 2 || base > 36)) throw RenderError("int: base must be 0 or 2 to 36");
  std::optional<Integer> result = as_integer(call.self);
  if (const Text* text = call.self.text()) {
    result = parse_integer(text->text.bytes, static_cast<int>(base));
    const auto number = result ? std::nullopt : parse_float(text->text.bytes);
    if (number) result = truncated(*number);
  } else if (const double* number = call.self.get<double>()) {
    result = truncated(*number);
  }
  if (result) return *result;
  return bound[0] ? *bound[0] : Value(Integer{0});
}

Value filter_float(Call& call) {
  const auto bound = call.bind({"default"});
  if (call.self.undefined()) throw_undefined(*call.self.undefined());
  if (const auto number = as_number(call.self)) return *number;
  if (const Text* text = call.self.text()) {
    if (const auto number = parse_float(text->text.bytes)) return *number;
  }
  return bound[0] ? *bound[0] : Value(0.0);
}

Value filter_abs(Call& call) {
  call.bind({});
  if (call.self.undefined()) throw_undefined(*call.self.undefined());
  if (const auto integer = as_integer(call.self)) return *integer < 0 ? negate(*integer) : *integer;
  if (const double* number = call.self.get<double>()) return std::fabs(*number);
  throw RenderError("bad operand type for abs(): '" + type_name(call.self) + "'");
}

// Python's round(): to even at the half, decided on the exact binary value, as glibc's printf does.
double round_common(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  const std::string digits = float_digits(std::fabs(value), 'f', precision, false);
  return std::copysign(std::strtod(digits.c_str(), nullptr), value);
}

Value filter_round(Call& call) {
  const auto bound = call.bind({"precision", "method"});
  if (call.self.undefined()) throw_undefined(*call.self.undefined());
  const auto number = as_number(call.self);
  if (!number) throw RenderError("round: want a number, got " + type_name(call.self));
  const Integer precision = integer_argument(call, bound[0], 0);
  if (precision < -300 || precision > 300) throw RenderError("round: precision beyond +-300");
  const std::string method = bound[1] ? text_argument(call, bound[1]).bytes : "common";
  if (method == "common") {
    if (!call.self.is<double>() && precision >= 0) return *as_integer(call.self);
    const double rounded = round_common(*number, static_cast<int64_t>(precision));
    return call.self.is<double>() ? Value(rounded) : Value(static_cast<Integer>(rounded));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(*number * scale) / scale;
  if (method == "floor") return std::floor(*number * scale) / scale;
  throw RenderError("method must be common, ceil or floor");
}

Value filter_wordcount(Call& call) {
  call.bind({});
  const MarkedText text = to_text(call.context, call.self);
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const CodePoint c = code_point_at(text.bytes, at);
    const auto category = utf8proc_category(c.value);
    const bool is_word = c.value == '_' ||
                         (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
                         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    if (is_word && !in_word) ++count;
    in_word = is_word;
    at += c.size;
  }
  return Value(count);
}

}  // namespace

NativeFunction find_number_filter(std::string_view name) {
  if (name == "int") return filter_int;
  if (name == "float") return filter_float;
  if (name == "abs") return filter_abs;
  if (name == "round") return filter_round;
  if (name == "wordcount") return filter_wordcount;
  return nullptr;
}

}  // namespace baton::jinja
