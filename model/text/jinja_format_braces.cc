// str.format(): replacement fields "{name.attribute[item]!r:spec}".
#include <algorithm>
#include <cmath>

#include "model/text/jinja_format.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

constexpr int64_t kWidthMax = 10'000;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool is_alternate = false, has_commas = false;
  int64_t width = 0, precision = -1;
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

int64_t parse_number(std::string_view spec, size_t& at) {
  int64_t number = 0;
  for (; at < spec.size() && spec[at] >= '0' && spec[at] <= '9'; ++at) {
    number = number * 10 + (spec[at] - '0');
    if (number > kWidthMax) throw RenderError("format width is above 10000");
  }
  return number;
}

Spec parse_spec(std::string_view spec) {
  Spec out;
  size_t at = 0;
  const auto accept = [&](char c) { return at < spec.size() && spec[at] == c && ++at; };
  if (!spec.empty()) {
    const size_t fill_size = code_point_at(spec, 0).size;
    if (fill_size < spec.size() && is_align(spec[fill_size])) {
      out.fill = std::string(spec.substr(0, fill_size));
      out.align = spec[fill_size];
      at = fill_size + 1;
    } else if (is_align(spec[0])) {
      out.align = spec[at++];
    }
  }
  for (char sign : {'+', '-', ' '}) {
    if (accept(sign)) out.sign = sign;
  }
  out.is_alternate = accept('#');
  if (accept('0') && !out.align) {
    out.fill = "0";
    out.align = '=';
  }
  out.width = parse_number(spec, at);
  out.has_commas = accept(',');
  if (accept('.')) out.precision = parse_number(spec, at);
  if (at < spec.size()) out.type = spec[at++];
  if (at != spec.size()) throw RenderError("Invalid format specifier");
  return out;
}

void append_aligned(TextBuilder& out, const Spec& spec, char default_align, std::string_view sign,
                    const MarkedText& body) {
  const auto used = static_cast<int64_t>(sign.size() + code_point_count(body.bytes));
  const int64_t missing = std::max<int64_t>(0, spec.width - used);
  const char align = spec.align ? spec.align : default_align;
  const auto fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) out.append(spec.fill);
  };
  const int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  fill(left);
  out.append(sign);
  if (align == '=') fill(missing);
  out.append(body);
  if (align == '<' || align == '^') fill(missing - left);
}

std::string with_commas(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out = digits;
  for (size_t at = whole; at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

std::string float_body(double value, const Spec& spec) {
  if (!spec.type && spec.precision < 0) return float_to_string(value);
  if (spec.type == '%') {
    return float_digits(value * 100, 'f', spec.precision < 0 ? 6 : spec.precision, false) + "%";
  }
  const char type = spec.type ? spec.type : 'g';
  return float_digits(value, type, spec.precision < 0 ? 6 : spec.precision, spec.is_alternate);
}

bool is_float_type(char type) {
  return std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

void format_number(TextBuilder& out, const Value& value, const Spec& spec) {
  std::string sign, digits;
  bool is_negative = false;
  const bool fits = !spec.type || is_float_type(spec.type) || spec.type == 'n';
  if (value.is<double>() ? fits : spec.type && is_float_type(spec.type)) {
    const double number = *as_number(value);
    is_negative = std::signbit(number);
    digits = float_body(std::fabs(number), spec);
  } else if (spec.type == 'c' && !value.is<double>()) {
    append_code_point(digits, static_cast<int32_t>(*as_integer(value)));
  } else if (!value.is<double>() &&
             (!spec.type || std::string_view("dnxXob").find(spec.type) != std::string_view::npos)) {
    const Integer number = *as_integer(value);
    is_negative = number < 0;
    digits = integer_digits(number, spec.type ? spec.type : 'd');
    if (spec.is_alternate && spec.type && spec.type != 'd') sign = std::string("0") + spec.type;
  } else {
    throw RenderError(std::string("Unknown format code '") + spec.type + "' for object of type '" +
                      type_name(value) + "'");
  }
  if (is_negative)
    sign.insert(0, "-");
  else if (spec.sign != '-')
    sign.insert(0, 1, spec.sign);
  MarkedText body;
  body.bytes = spec.has_commas ? with_commas(digits) : digits;
  append_aligned(out, spec, '>', sign, body);
}

void format_value(RenderContext& context, TextBuilder& out, const Value& value, char conversion,
                  std::string_view spec_text) {
  const Spec spec = parse_spec(spec_text);
  const bool is_number = as_number(value) && !(value.is<bool>() && spec_text.empty());
  if (is_number && !conversion) return format_number(out, value, spec);
  MarkedText text;
  if (conversion == 'r' || conversion == 'a') {
    TextBuilder repr(context);
    append_repr(repr, value);
    text = repr.take();
  } else {
    text = to_text(context, value);
  }
  if (!spec_text.empty() && !value.text() && !conversion) {
    throw RenderError("unsupported format string passed to " + type_name(value) + ".__format__");
  }
  if (spec.type && spec.type != 's') {
    throw RenderError(std::string("Unknown format code '") + spec.type +
                      "' for object of type 'str'");
  }
  if (spec.precision >= 0) {
    text = text.slice(0, code_point_offset(text.bytes, static_cast<size_t>(spec.precision)));
  }
  append_aligned(out, spec, '<', "", text);
}

// Reads the fields of one format() call.
class FieldReader {
 public:
  explicit FieldReader(Call& call) : call_(call) {}

  // "name.attribute[item]"; an empty name takes the next argument.
  Value resolve(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = argument(std::string(field.substr(0, end)));
    for (size_t at = end; at < field.size();) {
      if (field[at] == '.') {
        const size_t stop = std::min(field.find_first_of(".[", at + 1), field.size());
        value = attribute(value, field.substr(at + 1, stop - at - 1));
        at = stop;
      } else {
        const size_t stop = field.find(']', at);
        if (stop == std::string_view::npos) throw RenderError("expected '}' before end of string");
        value = subscript(call_.context, value, key_of(field.substr(at + 1, stop - at - 1)));
        at = stop + 1;
      }
      if (value.undefined()) throw_undefined(*value.undefined());
    }
    return value;
  }

 private:
  Value key_of(std::string_view key) const {
    if (!key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == key.npos) {
      return Value(static_cast<int64_t>(std::stoll(std::string(key))));
    }
    return make_text(call_.context, key);
  }

  Value argument(const std::string& name) {
    const bool is_index = name.find_first_not_of("0123456789") == std::string::npos;
    if (is_index && name.size() < 10) {
      const size_t index = name.empty() ? next_++ : std::stoull(name);
      if (index < call_.args.size()) return call_.args[index];
      throw RenderError("Replacement index " + std::to_string(index) +
                        " out of range for positional args tuple");
    }
    for (const auto& [key, value] : call_.kwargs) {
      if (key == name) return value;
    }
    throw RenderError("'" + name + "'");
  }

  Call& call_;
  size_t next_ = 0;
};

}  // namespace

Value format_braces(Call& call) {
  const MarkedText& source = call.self.text()->text;
  const std::string_view bytes = source.bytes;
  FieldReader fields(call);
  TextBuilder out(call.context);
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(source, at, brace);
    if (brace == bytes.size()) break;
    at = brace + 1;
    if (at < bytes.size() && bytes[at] == bytes[brace]) {
      out.append(source, at, at + 1);
      ++at;
      continue;
    }
    const size_t end = bytes.find('}', at);
    if (bytes[brace] == '}') throw RenderError("Single '}' encountered in format string");
    if (end == std::string_view::npos) throw RenderError("expected '}' before end of string");
    const std::string_view field = bytes.substr(at, end - at);
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    char conversion = 0;
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    format_value(call.context, out, fields.resolve(name), conversion,
                 field.substr(std::min(colon + 1, field.size())));
    at = end + 1;
  }
  return out.finish(call.self.text()->is_markup);
}

}  // namespace baton::jinja
