#include "model/text/byte_level.h"

#include <array>
#include <cstdint>

#include "model/text/utf8.h"

namespace baton {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;  // 68 bytes are not printable and are moved up

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};  // -1: not of the alphabet
};

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  char32_t moved = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet.character[byte] = is_printable(byte) ? static_cast<char32_t>(byte) : moved++;
    alphabet.byte[alphabet.character[byte]] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes)
    append_utf8(&token, kAlphabet.character[static_cast<uint8_t>(byte)]);
  return token;
}

std::optional<std::string> from_byte_level(std::string_view token) {
  if (find_invalid_utf8(token) != std::string_view::npos) return std::nullopt;
  std::string bytes;
  for (size_t offset = 0; offset < token.size();) {
    const CodePoint character = decode_utf8(token, offset);
    if (character.value >= kAlphabetEnd || kAlphabet.byte[character.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[character.value]));
    offset += character.bytes;
  }
  return bytes;
}

}  // namespace baton
