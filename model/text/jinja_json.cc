#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

std::string utf16_escape(int32_t c) {
  char buffer[16];
  if (c < 0x10000) {
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(c));
  } else {
    const unsigned rest = static_cast<unsigned>(c) - 0x10000;
    std::snprintf(buffer, sizeof(buffer), "\\u%04x\\u%04x", 0xd800 + (rest >> 10),
                  0xdc00 + (rest & 0x3ff));
  }
  return buffer;
}

// Empty: the code point stands as it is.
std::string json_escape(int32_t c, bool ensure_ascii) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
  }
  if (c < 0x20 || (ensure_ascii && c > 0x7e)) return utf16_escape(c);
  return {};
}

void append_json_text(TextBuilder& out, const MarkedText& text, bool ensure_ascii) {
  out.append("\"");
  for_each_run(text, [&](std::string_view run, bool from_user) {
    size_t plain = 0;  // start of what needs no escape
    for (size_t at = 0; at < run.size();) {
      const CodePoint c = code_point_at(run, at);
      const std::string escaped = json_escape(c.value, ensure_ascii);
      if (!escaped.empty()) {
        out.append(run.substr(plain, at - plain), from_user);
        out.append(escaped, from_user);
        plain = at + c.size;
      }
      at += c.size;
    }
    out.append(run.substr(plain), from_user);
  });
  out.append("\"");
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_to_string(value);
}

void append_json_key(TextBuilder& out, const Value& key, const JsonStyle& style) {
  MarkedText text;
  if (const Text* string = key.text()) {
    text = string->text;
  } else if (const bool* flag = key.get<bool>()) {
    text.bytes = *flag ? "true" : "false";
  } else if (const auto* integer = key.get<Integer>()) {
    text.bytes = integer_to_string(*integer);
  } else if (const double* number = key.get<double>()) {
    text.bytes = json_float(*number);
  } else if (key.is<None>()) {
    text.bytes = "null";
  } else {
    throw RenderError("tojson: keys must be str, int, float, bool or None, not " + type_name(key));
  }
  append_json_text(out, text, style.ensure_ascii);
}

void append_line_break(TextBuilder& out, const JsonStyle& style, int32_t level) {
  if (!style.is_indented) return;
  out.append("\n");
  for (int32_t i = 0; i < level; ++i) out.append(style.indent);
}

void append_json_list(TextBuilder& out, const std::vector<Value>& items, const JsonStyle& style,
                      int32_t level) {
  if (items.empty()) return out.append("[]");
  out.append("[");
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(style.item_separator);
    first = false;
    append_line_break(out, style, level + 1);
    append_json(out, item, style, level + 1);
  }
  append_line_break(out, style, level);
  out.append("]");
}

void append_json_dict(TextBuilder& out, const Dict& dict, const JsonStyle& style, int32_t level) {
  if (dict.entries.empty()) return out.append("{}");
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style.sort_keys) {
    const auto key_bytes = [](const auto* entry) -> const std::string& {
      const Text* text = entry->first.text();
      if (!text) throw RenderError("tojson: sort_keys wants keys that are all strings");
      return text->text.bytes;
    };
    std::stable_sort(entries.begin(), entries.end(),
                     [&](const auto* a, const auto* b) { return key_bytes(a) < key_bytes(b); });
  }
  out.append("{");
  bool first = true;
  for (const auto* entry : entries) {
    if (!first) out.append(style.item_separator);
    first = false;
    append_line_break(out, style, level + 1);
    append_json_key(out, entry->first, style);
    out.append(style.key_separator);
    append_json(out, entry->second, style, level + 1);
  }
  append_line_break(out, style, level);
  out.append("}");
}

}  // namespace

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style, int32_t level) {
  if (const Text* text = value.text()) return append_json_text(out, text->text, style.ensure_ascii);
  if (value.is<None>()) return out.append("null");
  if (const bool* flag = value.get<bool>()) return out.append(*flag ? "true" : "false");
  if (const auto* integer = value.get<Integer>()) return out.append(integer_to_string(*integer));
  if (const double* number = value.get<double>()) return out.append(json_float(*number));
  if (const Dict* dict = value.dict()) return append_json_dict(out, *dict, style, level);
  const Sequence* sequence = value.sequence();
  if (sequence &&
      (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple)) {
    return append_json_list(out, sequence->items, style, level);
  }
  throw RenderError("tojson: Object of type " + type_name(value) + " is not JSON serializable");
}

Value value_from_json(RenderContext& context, const nlohmann::ordered_json& json, bool from_user) {
  const DepthGuard guard(context);
  const auto text_of = [&](const std::string& bytes) {
    MarkedText text;
    text.append(bytes, from_user);
    return make_text(context, std::move(text));
  };
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::null:
      return None{};
    case nlohmann::ordered_json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      return static_cast<Integer>(json.get<uint64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return json.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return text_of(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(value_from_json(context, item, from_user));
      return make_sequence(context, SequenceKind::kList, std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      DictBuilder dict(context);
      for (const auto& [key, item] : json.items()) {
        dict.set(text_of(key), value_from_json(context, item, from_user));
      }
      return dict.finish();
    }
    default:
      throw RenderError("context: a JSON value of an unknown kind");
  }
}

}  // namespace baton::jinja
