#include "router/json_text.h"

#include <nlohmann/json.hpp>

namespace baton {
namespace {

// Levels of nesting of brackets outside of strings; stops counting beyond `limit`.
int32_t nesting_depth(std::string_view text, int32_t limit) {
  int32_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size() && deepest <= limit; ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

Result<Json> parse_json_object(std::string_view text, int32_t depth_max) {
  if (nesting_depth(text, depth_max) > depth_max) {
    return invalid_argument("body: got JSON nested deeper than " + std::to_string(depth_max) +
                            " levels, want at most that (http.json_depth_max)");
  }
  try {
    Json value = Json::parse(text);
    if (value.is_object()) return value;
    return invalid_argument(std::string("body: got JSON ") + value.type_name() +
                            ", want one JSON object");
  } catch (const Json::parse_error& error) {
    return invalid_argument("body: got text that stops being valid JSON at byte " +
                            std::to_string(error.byte) + ", want one JSON object in UTF-8");
  } catch (const Json::exception&) {  // a number that no double holds
    return invalid_argument("body: got a number out of range, want one JSON object");
  }
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t plain = 0;  // start of what needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, plain, text.size() - plain);
  out += '"';
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton
