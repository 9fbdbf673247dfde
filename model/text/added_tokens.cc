#include "model/text/added_tokens.h"

#include <algorithm>

#include "model/text/utf8.h"

namespace baton {
namespace {

bool stands_alone(std::string_view text, ByteRange match) {
  const bool word_before =
      match.begin > 0 && is_word_character(decode_utf8_before(text, match.begin).value);
  const bool word_after =
      match.end < text.size() && is_word_character(decode_utf8(text, match.end).value);
  return !word_before && !word_after;
}

size_t skip_blanks_left(std::string_view text, size_t offset) {
  while (offset > 0) {
    const CodePoint character = decode_utf8_before(text, offset);
    if (!is_white_space(character.value)) break;
    offset -= character.bytes;
  }
  return offset;
}

size_t skip_blanks_right(std::string_view text, size_t offset) {
  while (offset < text.size()) {
    const CodePoint character = decode_utf8(text, offset);
    if (!is_white_space(character.value)) break;
    offset += character.bytes;
  }
  return offset;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) insert(static_cast<int32_t>(i));
}

void AddedTokenFinder::insert(int32_t token) {
  const std::string& content = tokens_[token].content;
  if (content.empty()) return;
  begins_token_[static_cast<uint8_t>(content[0])] = true;
  int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].token < 0) nodes_[node].token = token;
}

int32_t AddedTokenFinder::child(int32_t node, uint8_t byte) const {
  for (const auto& [label, next] : nodes_[node].children) {
    if (label == byte) return next;
  }
  return -1;
}

AddedTokenFinder::Match AddedTokenFinder::longest_at(std::string_view text, size_t begin,
                                                     const std::vector<ByteRange>& literal) const {
  Match match;
  int32_t node = 0;
  for (size_t end = begin; end < text.size();) {
    node = child(node, static_cast<uint8_t>(text[end++]));
    if (node < 0) break;
    const int32_t token = nodes_[node].token;
    if (token < 0) continue;
    if (tokens_[token].special && overlaps_any(literal, {begin, end})) continue;
    match = {token, end};
  }
  return match;
}

void AddedTokenFinder::split(std::string_view text, const std::vector<ByteRange>& literal,
                             std::vector<TextPiece>* pieces) const {
  size_t text_begin = 0;  // of the text since the last token
  for (size_t offset = 0; offset < text.size();) {
    if (!begins_token_[static_cast<uint8_t>(text[offset])]) {
      ++offset;
      continue;
    }
    const Match match = longest_at(text, offset, literal);
    if (match.token < 0) {
      ++offset;
      continue;
    }
    const AddedToken& token = tokens_[match.token];
    ByteRange range{offset, match.end};
    offset = match.end;
    if (token.single_word && !stands_alone(text, range)) continue;
    if (token.lstrip) range.begin = std::max(skip_blanks_left(text, range.begin), text_begin);
    if (token.rstrip) range.end = skip_blanks_right(text, range.end);
    if (text_begin < range.begin) pieces->push_back({{text_begin, range.begin}, -1});
    pieces->push_back({range, token.id});
    text_begin = range.end;
  }
  if (text_begin < text.size()) pieces->push_back({{text_begin, text.size()}, -1});
}

}  // namespace baton
