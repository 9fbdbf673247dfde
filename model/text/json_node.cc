#include "model/text/json_node.h"

#include <fstream>

#include "base/status.h"

namespace baton {
namespace {

constexpr size_t kShownBytesMax = 80;

std::string shorten(std::string text) {
  if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax) + "...";
  return text;
}

}  // namespace

nlohmann::json read_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(path + ": got no readable file, want JSON");
  try {
    return nlohmann::json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(path + ": got a file that is not JSON (" + shorten(error.what()) +
                      "), want JSON");
  }
}

JsonNode JsonNode::at(const std::string& key) const {
  require_object();
  const auto found = value_.find(key);
  const char* separator = place_.ends_with(':') ? " " : ".";
  if (found == value_.end()) {
    throw ConfigError(place_ + separator + key + ": got nothing, want a value");
  }
  return JsonNode(*found, place_ + separator + key);
}

JsonNode JsonNode::at(size_t index) const {
  return JsonNode(value_.at(index), place_ + "[" + std::to_string(index) + "]");
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  if (!value_.is_object()) return std::nullopt;
  const auto found = value_.find(key);
  if (found == value_.end() || found->is_null()) return std::nullopt;
  return at(key);
}

std::string JsonNode::string() const {
  if (!value_.is_string()) fail("a string");
  return value_.get<std::string>();
}

bool JsonNode::boolean() const {
  if (!value_.is_boolean()) fail("true or false");
  return value_.get<bool>();
}

int64_t JsonNode::integer(int64_t min, int64_t max) const {
  // A number above the signed range is out of every range that we ask for.
  const bool fits = value_.is_number_integer() &&
                    (!value_.is_number_unsigned() || value_.get<uint64_t>() <= INT64_MAX);
  if (!fits || value_.get<int64_t>() < min || value_.get<int64_t>() > max) {
    fail("an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value_.get<int64_t>();
}

size_t JsonNode::array_size() const {
  if (!value_.is_array()) fail("an array");
  return value_.size();
}

void JsonNode::require_object() const {
  if (!value_.is_object()) fail("an object");
}

bool JsonNode::boolean_or(const std::string& key, bool otherwise) const {
  const std::optional<JsonNode> node = find(key);
  return node ? node->boolean() : otherwise;
}

std::string JsonNode::string_or(const std::string& key, const std::string& otherwise) const {
  const std::optional<JsonNode> node = find(key);
  return node ? node->string() : otherwise;
}

void JsonNode::fail(const std::string& want) const {
  using Handler = nlohmann::json::error_handler_t;
  throw ConfigError(place_ + ": got " + shorten(value_.dump(-1, ' ', false, Handler::replace)) +
                    ", want " + want);
}

}  // namespace baton
