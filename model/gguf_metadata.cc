#include <cmath>

#include "base/status.h"
#include "model/gguf.h"

namespace baton {

const GgufValue& GgufMetadata::scalar(const std::string& key, const char* want) const {
  const auto it = values_.find(key);
  if (it == values_.end()) throw ConfigError(file_ + ": metadata has no '" + key + "'");
  if (it->second.is_array) {
    throw ConfigError(file_ + ": metadata '" + key + "' is an array, want " + want);
  }
  return it->second;
}

int64_t GgufMetadata::integer(const std::string& key) const {
  const GgufValue& value = scalar(key, "an integer");
  if (value.integers.empty() || value.type == GgufType::kBool) {
    throw ConfigError(file_ + ": metadata '" + key + "' is not an integer");
  }
  return value.integers[0];
}

int64_t GgufMetadata::integer(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufMetadata::number(const std::string& key) const {
  const GgufValue& value = scalar(key, "a number");
  if (!value.floats.empty() && std::isfinite(value.floats[0])) return value.floats[0];
  if (!value.integers.empty()) return static_cast<double>(value.integers[0]);
  throw ConfigError(file_ + ": metadata '" + key + "' is not a finite number");
}

double GgufMetadata::number(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufMetadata::boolean(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  const GgufValue& value = scalar(key, "a boolean");
  if (value.type != GgufType::kBool) {
    throw ConfigError(file_ + ": metadata '" + key + "' is not a boolean");
  }
  return value.integers[0] != 0;
}

std::string GgufMetadata::string(const std::string& key) const {
  const GgufValue& value = scalar(key, "a string");
  if (value.strings.empty()) throw ConfigError(file_ + ": metadata '" + key + "' is not a string");
  return value.strings[0];
}

std::string GgufMetadata::string(const std::string& key, const std::string& fallback) const {
  return has(key) ? string(key) : fallback;
}

std::vector<std::string> GgufMetadata::strings(const std::string& key) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return {};
  if (!it->second.is_array || it->second.type != GgufType::kString) {
    throw ConfigError(file_ + ": metadata '" + key + "' is not an array of strings");
  }
  return it->second.strings;
}

std::vector<int64_t> GgufMetadata::integers(const std::string& key) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return {};
  const GgufType type = it->second.type;
  if (!it->second.is_array || type == GgufType::kString || type == GgufType::kF32 ||
      type == GgufType::kF64 || type == GgufType::kBool) {
    throw ConfigError(file_ + ": metadata '" + key + "' is not an array of integers");
  }
  return it->second.integers;
}

}  // namespace baton
