#include "router/json_fields.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace baton {
namespace {

constexpr size_t kShownBytes = 40;
constexpr size_t kShownMembers = 4;

// Integers come as 5 and, from some clients, as 5.0.
std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > 9e15) return std::nullopt;
  return static_cast<int64_t>(number);
}

// A list or object that is worth a try to show it whole.
bool is_small(const Json& value) {
  if (!value.is_structured() || value.size() > kShownMembers) return false;
  return std::none_of(value.begin(), value.end(),
                      [](const Json& member) { return member.is_structured(); });
}

std::string number_text(double number) {
  std::string text = Json(number).dump();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::string shown(const Json& value) {
  if (is_small(value)) {
    std::string text = dump_json(value);
    if (text.size() <= kShownBytes) return text;
  }
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  if (const auto ids = packed_ids(value)) return "a list of " + std::to_string(ids->size());
  if (value.is_object()) return "an object";
  std::string text = dump_json(value);
  if (text.size() > kShownBytes) return "a string of " + std::to_string(text.size()) + " bytes";
  return text;
}

const Json* FieldReader::find(const char* name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::complain(const std::string& subject, const std::string& got,
                           const std::string& want) {
  refuse(invalid_argument(subject + ": got " + got + ", want " + want));
}

void FieldReader::boolean(const char* name, bool& out) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return complain(name, shown(*value), "true or false");
  out = value->get<bool>();
}

void FieldReader::integer64(const char* name, int64_t& out, int64_t min, int64_t max,
                            const std::string& setting) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const std::optional<int64_t> number = as_integer(*value);
  if (!number || *number < min || *number > max) {
    return complain(name, shown(*value),
                    "an integer from " + std::to_string(min) + " to " + std::to_string(max) +
                        (setting.empty() ? "" : " (" + setting + ")"));
  }
  out = *number;
}

void FieldReader::integer(const char* name, int32_t& out, int64_t min, int64_t max,
                          const std::string& setting) {
  int64_t wide = out;
  integer64(name, wide, min, max, setting);
  out = static_cast<int32_t>(wide);
}

void FieldReader::number(const char* name, float& out, double min, double max, bool above_min) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= min && number <= max) || (above_min && number == min)) {
    return complain(name, shown(*value),
                    std::string("a number ") + (above_min ? "above " : "from ") + number_text(min) +
                        " to " + number_text(max));
  }
  out = static_cast<float>(number);
}

void FieldReader::text(const char* name, std::string& out, size_t bytes_max) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return complain(name, shown(*value), "a string");
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    return complain(name, std::to_string(text.size()) + " bytes",
                    "at most " + std::to_string(bytes_max));
  }
  out = text;
}

void FieldReader::token_ids(const char* name, std::vector<TokenId>& out, int32_t vocab_size,
                            size_t count_max) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return complain(name, shown(*value), "a list of token ids");
  if (value->size() > count_max) {
    return complain(name, shown(*value), "a list of at most " + std::to_string(count_max));
  }
  out.clear();
  for (const Json& id : *value) out.push_back(read_token_id(id, name, vocab_size, *this));
}

TokenId read_token_id(const Json& value, const std::string& subject, int32_t vocab_size,
                      FieldReader& reader) {
  const std::optional<int64_t> id = as_integer(value);
  if (id && *id >= 0 && *id < vocab_size) return static_cast<TokenId>(*id);
  reader.complain(subject, shown(value), "token ids from 0 to " + std::to_string(vocab_size - 1));
  return 0;
}

}  // namespace baton
