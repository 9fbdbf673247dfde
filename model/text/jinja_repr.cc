#include "model/text/jinja_repr.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace baton::jinja {
namespace {

std::string hex_escape(int32_t c) {
  char buffer[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(c));
  return buffer;
}

// str.isprintable() for one code point.
bool is_printable(int32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string repr_of_code_point(int32_t c, char quote) {
  switch (c) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
  }
  if (c == quote) return std::string("\\") + quote;
  if (!is_printable(c)) return hex_escape(c);
  std::string out;
  append_code_point(out, c);
  return out;
}

void append_text_repr(TextBuilder& out, const MarkedText& text) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  for_each_run(text, [&](std::string_view run, bool from_user) {
    for (size_t at = 0; at < run.size();) {
      const CodePoint c = code_point_at(run, at);
      out.append(repr_of_code_point(c.value, quote), from_user);
      at += c.size;
    }
  });
  out.append(std::string_view(&quote, 1));
}

void append_items(TextBuilder& out, const std::vector<Value>& items) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ");
    first = false;
    append_repr(out, item);
  }
}

void append_sequence_repr(TextBuilder& out, const Sequence& sequence) {
  switch (sequence.kind) {
    case SequenceKind::kTuple:
      out.append("(");
      append_items(out, sequence.items);
      out.append(sequence.items.size() == 1 ? ",)" : ")");
      return;
    case SequenceKind::kGenerator:
      out.append("<generator object>");
      return;
    case SequenceKind::kItems:
      out.append("dict_items([");
      break;
    case SequenceKind::kKeys:
      out.append("dict_keys([");
      break;
    case SequenceKind::kValues:
      out.append("dict_values([");
      break;
    case SequenceKind::kList:
    case SequenceKind::kRange:
      out.append("[");
      break;
  }
  append_items(out, sequence.items);
  const bool is_view =
      sequence.kind != SequenceKind::kList && sequence.kind != SequenceKind::kRange;
  out.append(is_view ? "])" : "]");
}

struct ReprVisitor {
  TextBuilder& out;

  void operator()(const Undefined&) const { out.append("Undefined"); }
  void operator()(const None&) const { out.append("None"); }
  void operator()(bool value) const { out.append(value ? "True" : "False"); }
  void operator()(const Integer& value) const { out.append(integer_to_string(value)); }
  void operator()(double value) const { out.append(float_to_string(value)); }
  void operator()(const TextPtr& value) const {
    if (value->is_markup) out.append("Markup(");
    append_text_repr(out, value->text);
    if (value->is_markup) out.append(")");
  }
  void operator()(const SequencePtr& value) const { append_sequence_repr(out, *value); }
  void operator()(const DictPtr& value) const {
    out.append("{");
    bool first = true;
    for (const auto& [key, item] : value->entries) {
      if (!first) out.append(", ");
      first = false;
      append_repr(out, key);
      out.append(": ");
      append_repr(out, item);
    }
    out.append("}");
  }
  // No contents: a namespace may hold itself.
  void operator()(const NamespacePtr&) const { out.append("<Namespace>"); }
  void operator()(const LoopPtr& value) const {
    out.append("<LoopContext " + std::to_string(value->index + 1) + "/" +
               std::to_string(value->items->items.size()) + ">");
  }
  void operator()(const CallablePtr& value) const { out.append("<function " + value->name + ">"); }
};

}  // namespace

std::string digits_in_base(Integer value, int base) {
  if (value == 0) return "0";
  // Digits are taken from the negative side: it has one number more.
  std::string digits;
  for (Integer rest = value < 0 ? value : -value; rest != 0; rest /= base) {
    digits.push_back("0123456789abcdef"[-static_cast<int>(rest % base)]);
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string integer_to_string(Integer value) {
  return (value < 0 ? "-" : "") + digits_in_base(value, 10);
}

std::string float_to_string(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto written =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string scientific(buffer, written.ptr);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string out(buffer, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

MarkedText to_text(RenderContext& context, const Value& value) {
  if (const Text* text = value.text()) return text->text;
  if (value.undefined()) return {};
  TextBuilder out(context);
  append_repr(out, value);
  return out.take();
}

void append_repr(TextBuilder& out, const Value& value) {
  std::visit(ReprVisitor{out}, value.variant());
}

}  // namespace baton::jinja
