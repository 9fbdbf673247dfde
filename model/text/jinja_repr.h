// Values as text, the way Python's str(), repr() and json.dumps() write them. Marks of user text
// survive.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/text/jinja_value.h"

namespace baton::jinja {

std::string integer_to_string(Integer value);
std::string digits_in_base(Integer value, int base);  // without sign
std::string float_to_string(
    double value);  // shortest digits that read back equal, as Python prints them: 1.0, 1e+16

// str(): a string is itself, undefined is "", containers print their items' repr.
MarkedText to_text(RenderContext& context, const Value& value);
void append_repr(TextBuilder& out, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool is_indented = false;
  MarkedText indent;  // one level, when is_indented
  MarkedText item_separator, key_separator;
  bool sort_keys = false;
};
// json.dumps(). Throws RenderError for a value that JSON has no word for.
void append_json(TextBuilder& out, const Value& value, const JsonStyle& style, int32_t level = 0);

// `from_user`: mark every string and key inside as the user's.
Value value_from_json(RenderContext& context, const nlohmann::ordered_json& json, bool from_user);

}  // namespace baton::jinja
