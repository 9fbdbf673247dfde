// A value of a JSON file together with its place, so that every error names file and key. Used
// while loading vocabularies; one thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace baton {

// Throws ConfigError if the file cannot be read or is not JSON.
nlohmann::json read_json_file(const std::string& path);

// Borrows the value. All methods but find() and is_null() throw ConfigError.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string place)
      : value_(value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return value_; }
  const std::string& place() const { return place_; }  // "tokenizer.json: model.merges"

  JsonNode at(const std::string& key) const;                   // must be there
  JsonNode at(size_t index) const;                             // REQUIRES: size() > index
  std::optional<JsonNode> find(const std::string& key) const;  // nothing if absent or null

  std::string string() const;
  bool boolean() const;
  int64_t integer(int64_t min, int64_t max) const;
  size_t array_size() const;
  void require_object() const;

  // Defaults for keys that older files lack.
  bool boolean_or(const std::string& key, bool otherwise) const;
  std::string string_or(const std::string& key, const std::string& otherwise) const;

  [[noreturn]] void fail(const std::string& want) const;  // "<place>: got <value>, want <want>"

 private:
  const nlohmann::json& value_;
  const std::string place_;
};

}  // namespace baton
