// A tokeniser for tests: token i is byte i, 256 is <bos>, 257 is <eos>.
#pragma once

#include <string>
#include <vector>

#include "model/text/tokenizer.h"

namespace baton {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257;

  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special_tokens) ids.push_back(kBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<std::vector<int32_t>> encode_spans(const std::vector<TextSpan>& spans,
                                            bool add_special_tokens) const override {
    std::string text;
    for (const TextSpan& span : spans) text += span.text;
    return encode(text, {.add_special_tokens = add_special_tokens});
  }
  std::string token_bytes(int32_t id, bool skip_special) const override {
    if (id < 256) return std::string(1, static_cast<char>(id));
    return skip_special ? "" : token_name(id);
  }
  std::string token_name(int32_t id) const override {
    if (id < 256) return std::string(1, static_cast<char>(id));
    return id == kBos ? "<bos>" : "<eos>";
  }
  int32_t token_id(std::string_view) const override { return -1; }
  bool is_special(int32_t id) const override { return id >= 256; }
  int32_t vocab_size() const override { return 258; }
  int32_t bos_id() const override { return kBos; }
  const std::vector<int32_t>& eos_ids() const override { return eos_ids_; }

 private:
  const std::vector<int32_t> eos_ids_ = {kEos};
};

}  // namespace baton
