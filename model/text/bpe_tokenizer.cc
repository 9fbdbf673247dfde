#include "model/text/bpe_tokenizer.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "model/text/byte_level.h"
#include "model/text/utf8.h"

namespace baton {
namespace {

std::string_view slice(std::string_view text, ByteRange range) {
  return text.substr(range.begin, range.end - range.begin);
}

// What of an added token is looked for in the text, and comes out of decoding.
std::string shown_content(const AddedToken& token, bool nfc) {
  std::vector<ByteRange> no_ranges;
  return nfc && token.normalized ? to_nfc(token.content, &no_ranges) : token.content;
}

std::vector<AddedToken> select_added(const std::vector<AddedToken>& added, bool normalized,
                                     bool nfc) {
  std::vector<AddedToken> selected;
  for (AddedToken token : added) {
    if (token.normalized != normalized) continue;
    token.content = shown_content(token, nfc);
    selected.push_back(std::move(token));
  }
  return selected;
}

const BpeVocab& mark_control_tokens(TokenizerParts* parts) {
  for (const AddedToken& token : parts->added) {
    const bool in_model = static_cast<size_t>(token.id) < parts->vocab.tokens.size();
    if (token.special && in_model) parts->vocab.control_ids.push_back(token.id);
  }
  return parts->vocab;
}

}  // namespace

BpeTokenizer::BpeTokenizer(TokenizerParts parts, const std::string& subject)
    : bpe_(mark_control_tokens(&parts), subject),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      nfc_(parts.nfc),
      raw_added_(select_added(parts.added, false, nfc_)),
      normalized_added_(select_added(parts.added, true, nfc_)),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)),
      bos_id_(parts.bos_id),
      eos_ids_(std::move(parts.eos_ids)) {
  for (size_t id = 0; id < parts.vocab.tokens.size(); ++id) {
    const std::string& name = parts.vocab.tokens[id];
    if (name.empty()) continue;
    set_token(static_cast<int32_t>(id), name, false);
    ids_.emplace(name, static_cast<int32_t>(id));
  }
  for (const AddedToken& token : parts.added) {
    set_token(token.id, shown_content(token, nfc_), token.special);
    ids_.insert_or_assign(token.content, token.id);
  }
  const auto check = [&](const char* what, int32_t id) {
    if (id >= 0 && id < vocab_size()) return;
    throw ConfigError(subject + ": " + what + ": got " + std::to_string(id) +
                      ", want an id below the vocabulary's size, " + std::to_string(vocab_size()));
  };
  if (bos_id_ != -1) check("id of BOS", bos_id_);
  for (const int32_t id : eos_ids_) check("id of EOS", id);
  for (const int32_t id : prefix_) check("id of a token before the text", id);
  for (const int32_t id : suffix_) check("id of a token after the text", id);
}

void BpeTokenizer::set_token(int32_t id, const std::string& name, bool special) {
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
  // A token with any character outside the byte-level alphabet stands for its own UTF-8 bytes.
  tokens_[id] = {name, from_byte_level(name).value_or(name), special};
}

Result<std::vector<int32_t>> BpeTokenizer::encode(std::string_view text,
                                                  const EncodeOptions& options) const {
  std::vector<ByteRange> literal;
  if (!options.parse_special && !text.empty()) literal.push_back({0, text.size()});
  return encode_text(text, literal, options.add_special_tokens);
}

Result<std::vector<int32_t>> BpeTokenizer::encode_spans(const std::vector<TextSpan>& spans,
                                                        bool add_special_tokens) const {
  std::string text;
  std::vector<ByteRange> literal;
  for (const TextSpan& span : spans) {
    if (!span.parse_special && !span.text.empty()) {
      literal.push_back({text.size(), text.size() + span.text.size()});
    }
    text += span.text;
  }
  return encode_text(text, literal, add_special_tokens);
}

Result<std::vector<int32_t>> BpeTokenizer::encode_text(std::string_view text,
                                                       const std::vector<ByteRange>& literal,
                                                       bool add_special_tokens) const {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    return invalid_argument("text: got invalid UTF-8 at byte " + std::to_string(invalid) + " of " +
                            std::to_string(text.size()) + ", want UTF-8");
  }
  Scratch scratch;
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = prefix_;
  raw_added_.split(text, literal, &scratch.pieces);
  for (const TextPiece& piece : scratch.pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
      continue;
    }
    const Status status =
        encode_piece(slice(text, piece.range), clip_ranges(literal, piece.range), &scratch, &ids);
    if (!status.ok()) return status;
  }
  if (add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

// A text without raw added tokens: it is normalised on its own.
Status BpeTokenizer::encode_piece(std::string_view text, std::vector<ByteRange> literal,
                                  Scratch* scratch, std::vector<int32_t>* ids) const {
  std::string normalized;
  if (nfc_) {
    normalized = to_nfc(text, &literal);
    text = normalized;
  }
  scratch->inner_pieces.clear();
  normalized_added_.split(text, literal, &scratch->inner_pieces);
  for (const TextPiece& piece : scratch->inner_pieces) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
      continue;
    }
    const Status status = encode_words(slice(text, piece.range), scratch, ids);
    if (!status.ok()) return status;
  }
  return Status();
}

Status BpeTokenizer::encode_words(std::string_view text, Scratch* scratch,
                                  std::vector<int32_t>* ids) const {
  const Status status = pre_tokenizer_.split(text, &scratch->pre);
  if (!status.ok()) return status;
  for (const std::string_view word : scratch->pre.pieces) {
    bpe_.encode_word(word, &scratch->bpe, ids);
  }
  return Status();
}

std::string BpeTokenizer::token_bytes(int32_t id, bool skip_special) const {
  CHECK(id >= 0 && id < vocab_size()) << "token id " << id << " of " << vocab_size();
  return skip_special && tokens_[id].special ? std::string() : tokens_[id].bytes;
}

std::string BpeTokenizer::token_name(int32_t id) const {
  CHECK(id >= 0 && id < vocab_size()) << "token id " << id << " of " << vocab_size();
  return tokens_[id].name;
}

int32_t BpeTokenizer::token_id(std::string_view name) const {
  const auto found = ids_.find(std::string(name));
  return found == ids_.end() ? -1 : found->second;
}

bool BpeTokenizer::is_special(int32_t id) const {
  CHECK(id >= 0 && id < vocab_size()) << "token id " << id << " of " << vocab_size();
  return tokens_[id].special;
}

}  // namespace baton
