// The byte-level alphabet of GPT-2: each of the 256 bytes is written as one printable character, so
// that a vocabulary file is text. Source: openai/gpt-2 encoder.py, bytes_to_unicode. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

// " hello" -> "Ġhello"
std::string to_byte_level(std::string_view bytes);

// "Ġhello" -> " hello"; nothing if a character is not of the alphabet or the token is not UTF-8.
std::optional<std::string> from_byte_level(std::string_view token);

}  // namespace baton
