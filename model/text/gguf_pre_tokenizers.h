// The pre-tokenisers that GGUF files name in tokenizer.ggml.pre. Called by make_gguf_tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace baton {

struct GgufPreTokenizer {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;  // applied one after the other, matches isolated
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();

}  // namespace baton
