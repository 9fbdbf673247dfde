// decode() and Detokenizer of tokenizer.h.
#include "model/text/tokenizer.h"
#include "model/text/utf8.h"

namespace baton {

std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id, skip_special);
  std::string text;
  append_lossy_utf8(bytes, /*is_end=*/true, &text);
  return text;
}

std::string Detokenizer::push(int32_t id) {
  pending_ += tokenizer_.token_bytes(id, skip_special_);
  std::string text;
  pending_.erase(0, append_lossy_utf8(pending_, /*is_end=*/false, &text));
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  append_lossy_utf8(pending_, /*is_end=*/true, &text);
  pending_.clear();
  return text;
}

}  // namespace baton
