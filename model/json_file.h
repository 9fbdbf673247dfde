// JSON of model files: nesting limited, duplicate keys refused, errors that name the file. Called
// at load time only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace baton {

// Deeply nested values would overflow the stack in nlohmann's recursive parts (dump, copies).
constexpr int kJsonDepthMax = 64;

// Throws ConfigError "<subject>: ..." for anything but one well-formed JSON value without duplicate
// keys.
nlohmann::json parse_json(std::string_view text, const std::string& subject);

// The whole file as text, at most `bytes_max`. Throws ConfigError when it is missing or longer.
std::string read_text_file(const std::string& path, int64_t bytes_max = int64_t{256} << 20);
nlohmann::json parse_json_file(const std::string& path);

bool file_exists(const std::string& path);

}  // namespace baton
