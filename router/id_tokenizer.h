// Stands in for the tokeniser of a model that has none (it is only fed token ids): a token's text
// is its number. Any thread.
#pragma once

#include <string>
#include <vector>

#include "model/text/tokenizer.h"

namespace baton {

class IdTokenizer final : public Tokenizer {
 public:
  IdTokenizer(int32_t vocab_size, std::vector<int32_t> eos_ids)
      : vocab_size_(vocab_size), eos_ids_(std::move(eos_ids)) {}

  Result<std::vector<int32_t>> encode(std::string_view, const EncodeOptions&) const override {
    return no_text();
  }
  Result<std::vector<int32_t>> encode_spans(const std::vector<TextSpan>&, bool) const override {
    return no_text();
  }
  std::string token_bytes(int32_t id, bool) const override { return " " + std::to_string(id); }
  std::string token_name(int32_t id) const override { return std::to_string(id); }
  int32_t token_id(std::string_view) const override { return -1; }
  bool is_special(int32_t) const override { return false; }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t bos_id() const override { return -1; }
  const std::vector<int32_t>& eos_ids() const override { return eos_ids_; }

 private:
  static Status no_text() {
    return invalid_argument("got text, want a list of token ids: this model has no tokenizer");
  }

  const int32_t vocab_size_;
  const std::vector<int32_t> eos_ids_;
};

}  // namespace baton
