#include "router/json_text.h"

#include <simdjson.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace baton {
namespace {

// Finding a key walks its object's members, so that reading many is work of their square.
constexpr size_t kMembersMax = 1024;
constexpr size_t kPackedIdsMin = 256;

// One pass over the text without recursion: OK, or what must not reach Json::parse.
Status scan(std::string_view text, int32_t depth_max) {
  std::vector<size_t> members;  // of each open object, outermost first; 0 for lists
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
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
      if (members.size() == static_cast<size_t>(depth_max)) {
        return invalid_argument("body: got JSON nested deeper than " + std::to_string(depth_max) +
                                " levels, want at most that (http.json_depth_max)");
      }
      members.push_back(0);
    } else if (c == '}' || c == ']') {
      if (members.empty()) {
        return invalid_argument("body: got text that stops being valid JSON at byte " +
                                std::to_string(i + 1) + ", want one JSON object in UTF-8");
      }
      members.pop_back();
    } else if (c == ':' && !members.empty() && ++members.back() > kMembersMax) {
      return invalid_argument("body: got a JSON object of more than " +
                              std::to_string(kMembersMax) + " members, want at most that");
    }
  }
  return {};
}

// Whether it has an escape of half a character, or what looks like one.
bool has_surrogates(std::string_view text) {
  for (size_t i = text.find("\\u"); i != text.npos; i = text.find("\\u", i + 2)) {
    if (i + 2 < text.size() && (text[i + 2] | 0x20) == 'd') return true;
  }
  return false;
}

Json json_of(const simdjson::dom::element& element);
Json json_of_prompt(const simdjson::dom::element& prompt);

// Throws simdjson_error for too many members, before their keys are compared.
Json json_of_object(const simdjson::dom::object& members, bool is_body) {
  if (members.size() > kMembersMax) throw simdjson::simdjson_error(simdjson::CAPACITY);
  Json object = Json::object();
  for (const auto& [key, value] : members) {
    const bool is_prompt = is_body && key == "prompt";
    object[std::string(key)] = is_prompt ? json_of_prompt(value) : json_of(value);
  }
  return object;
}

Json json_of(const simdjson::dom::element& element) {
  using Type = simdjson::dom::element_type;
  switch (element.type()) {
    case Type::OBJECT:
      return json_of_object(element.get_object().value_unsafe(), /*is_body=*/false);
    case Type::ARRAY: {
      const simdjson::dom::array items = element.get_array().value_unsafe();
      Json::array_t array;
      array.reserve(items.size());
      for (const simdjson::dom::element item : items) array.push_back(json_of(item));
      return array;
    }
    case Type::STRING:
      return std::string(element.get_string().value_unsafe());
    case Type::INT64: {
      const int64_t value = element.get_int64().value_unsafe();
      return value < 0 ? Json(value) : Json(static_cast<uint64_t>(value));  // as Json::parse has it
    }
    case Type::UINT64:
      return element.get_uint64().value_unsafe();
    case Type::DOUBLE:
      return element.get_double().value_unsafe();
    case Type::BOOL:
      return element.get_bool().value_unsafe();
    case Type::NULL_VALUE:
      break;
  }
  return nullptr;
}

// Nothing if the list is short, or has anything in it but integers from 0 on.
std::optional<Json> pack_ids(const simdjson::dom::element& element) {
  simdjson::dom::array items;
  if (element.get(items) != simdjson::SUCCESS || items.size() < kPackedIdsMin) return std::nullopt;
  std::vector<uint8_t> bytes(items.size() * sizeof(int32_t));
  auto* out = bytes.data();
  for (const simdjson::dom::element item : items) {
    if (item.type() != simdjson::dom::element_type::INT64) return std::nullopt;
    const int64_t value = item.get_int64().value_unsafe();
    if (value < 0 || value > INT32_MAX) return std::nullopt;
    const auto id = static_cast<int32_t>(value);
    std::memcpy(std::exchange(out, out + sizeof(id)), &id, sizeof(id));
  }
  return Json::binary(std::move(bytes));
}

Json json_of_prompt(const simdjson::dom::element& prompt) {
  if (std::optional<Json> ids = pack_ids(prompt)) return std::move(*ids);
  simdjson::dom::array lists;
  if (prompt.get(lists) != simdjson::SUCCESS) return json_of(prompt);
  Json array = Json::array();
  for (const simdjson::dom::element list : lists) {
    std::optional<Json> ids = pack_ids(list);
    array.push_back(ids ? std::move(*ids) : json_of(list));
  }
  return array;
}

// Several times as fast as Json::parse on prompts of many token ids, and all of it is TTFT. Nothing
// for what is not valid, too deep (its depth ends below ours by one at most), has too many members,
// half a character, which simdjson lets pass, or larger numbers.
std::optional<Json> parse_fast(std::string_view text, int32_t depth_max) {
  if (has_surrogates(text)) return std::nullopt;
  try {
    simdjson::dom::parser parser;
    const auto depth = static_cast<size_t>(depth_max);
    if (parser.allocate(text.size(), depth) != simdjson::SUCCESS) return std::nullopt;
    const simdjson::dom::element root = parser.parse(text.data(), text.size());
    if (root.is_object()) return json_of_object(root.get_object(), /*is_body=*/true);
    return json_of(root);
  } catch (const simdjson::simdjson_error&) {
    return std::nullopt;
  }
}

// JSON and event streams take these for characters like any other. Clients that cut a stream into
// lines as their language sees lines (Python's splitlines, so httpx) would cut events there.
struct LineEnd {
  std::string_view bytes, escape;
};
constexpr LineEnd kLineEnds[] = {
    {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
constexpr const char* kLineEndStarts = "\xC2\xE2";

const LineEnd* line_end_at(std::string_view text, size_t at) {
  for (const LineEnd& end : kLineEnds) {
    if (text.substr(at, end.bytes.size()) == end.bytes) return &end;
  }
  return nullptr;
}

}  // namespace

Result<Json> parse_json_object(std::string_view text, int32_t depth_max) {
  if (text.empty()) return invalid_argument("body: got nothing, want one JSON object in UTF-8");
  try {
    std::optional<Json> value = parse_fast(text, depth_max);
    if (!value) {  // Json::parse knows larger numbers and the place of an error, but recurses
      if (const Status status = scan(text, depth_max); !status.ok()) return status;
      value = Json::parse(text);
    }
    if (value->is_object()) return std::move(*value);
    return invalid_argument(std::string("body: got JSON ") + value->type_name() +
                            ", want one JSON object");
  } catch (const Json::parse_error& error) {
    return invalid_argument("body: got text that stops being valid JSON at byte " +
                            std::to_string(error.byte) + ", want one JSON object in UTF-8");
  } catch (const Json::exception&) {  // a number that no double holds
    return invalid_argument("body: got a number out of range, want one JSON object");
  }
}

std::optional<std::span<const int32_t>> packed_ids(const Json& json) {
  if (!json.is_binary()) return std::nullopt;
  const std::vector<uint8_t>& bytes = json.get_binary();
  return std::span(reinterpret_cast<const int32_t*>(bytes.data()), bytes.size() / sizeof(int32_t));
}

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t plain = 0;  // start of what needs no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0xC2 && c != 0xE2) continue;
    const LineEnd* line_end = line_end_at(text, i);
    if (line_end == nullptr && c >= 0x80) continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    if (line_end != nullptr) {
      out += line_end->escape;
      plain = i + line_end->bytes.size();
      continue;
    }
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
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  size_t plain = 0;  // start of what is to be copied
  for (size_t i = text.find_first_of(kLineEndStarts); i != std::string::npos;
       i = text.find_first_of(kLineEndStarts, i + 1)) {
    const LineEnd* line_end = line_end_at(text, i);
    if (line_end == nullptr) continue;
    out.append(text, plain, i - plain);
    out += line_end->escape;
    plain = i + line_end->bytes.size();
  }
  if (plain == 0) return text;
  return out.append(text, plain);
}

}  // namespace baton
