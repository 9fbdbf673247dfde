// The one implementation of Tokenizer: added tokens, NFC, pre-tokeniser, BPE, special tokens
// around. Built by load_tokenizer_json and make_gguf_tokenizer. Immutable after construction;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/text/added_tokens.h"
#include "model/text/bpe.h"
#include "model/text/pretokenizer.h"
#include "model/text/tokenizer.h"

namespace baton {

// What a vocabulary file says, checked and resolved to ids.
struct TokenizerParts {
  BpeVocab vocab;
  std::vector<AddedToken> added;  // ids may be those of vocab.tokens or follow them; no duplicates
  PreTokenizer pre_tokenizer;
  bool nfc = false;
  std::vector<int32_t> prefix, suffix;  // around a text with add_special_tokens
  int32_t bos_id = -1;
  std::vector<int32_t> eos_ids;
};

class BpeTokenizer : public Tokenizer {
 public:
  // Throws ConfigError("<subject>: ...").
  BpeTokenizer(TokenizerParts parts, const std::string& subject);

  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options) const override;
  Result<std::vector<int32_t>> encode_spans(const std::vector<TextSpan>& spans,
                                            bool add_special_tokens) const override;
  std::string token_bytes(int32_t id, bool skip_special) const override;
  std::string token_name(int32_t id) const override;
  int32_t token_id(std::string_view name) const override;
  bool is_special(int32_t id) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  int32_t bos_id() const override { return bos_id_; }
  const std::vector<int32_t>& eos_ids() const override { return eos_ids_; }

 private:
  struct Token {
    std::string name;
    std::string bytes;
    bool special = false;
  };
  struct Scratch {
    PreTokenizerScratch pre;
    BpeScratch bpe;
    std::vector<TextPiece> pieces, inner_pieces;
  };

  void set_token(int32_t id, const std::string& name, bool special);
  Result<std::vector<int32_t>> encode_text(std::string_view text,
                                           const std::vector<ByteRange>& literal,
                                           bool add_special_tokens) const;
  Status encode_piece(std::string_view text, std::vector<ByteRange> literal, Scratch* scratch,
                      std::vector<int32_t>* ids) const;
  Status encode_words(std::string_view text, Scratch* scratch, std::vector<int32_t>* ids) const;

  const Bpe bpe_;
  const PreTokenizer pre_tokenizer_;
  const bool nfc_;
  const AddedTokenFinder raw_added_, normalized_added_;
  const std::vector<int32_t> prefix_, suffix_;
  const int32_t bos_id_;
  const std::vector<int32_t> eos_ids_;
  std::vector<Token> tokens_;  // by id
  std::unordered_map<std::string, int32_t> ids_;
};

}  // namespace baton
