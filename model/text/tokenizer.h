// Text to token ids and back, for byte-level BPE vocabularies (GPT-2, Llama 3, Qwen, SmolLM, ...),
// read from a Hugging Face tokenizer.json or from GGUF metadata. Results equal those of Hugging
// Face `tokenizers` on the same file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton {

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS/EOS where the vocabulary's post-processor adds them
  // False: text that looks like a control token ("<|im_end|>") is encoded as ordinary text. User
  // text of a chat is encoded this way, so that nobody can write himself a system message.
  bool parse_special = true;
};

// A piece of a prompt and whether control tokens inside it are to be recognised (template text:
// yes; user text: no).
struct TextSpan {
  std::string text;
  bool parse_special = true;
};

// Immutable after construction; thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Errors: invalid UTF-8; a pre-tokeniser limit ("MATCHLIMIT"), named. Never a wrong split.
  virtual Result<std::vector<int32_t>> encode(std::string_view text,
                                              const EncodeOptions& options) const = 0;
  // The spans are one text: pre-tokenisation does not split between them unless a control token
  // does.
  virtual Result<std::vector<int32_t>> encode_spans(const std::vector<TextSpan>& spans,
                                                    bool add_special_tokens) const = 0;

  // The bytes that a token stands for; empty for a special token when skip_special. May be half a
  // UTF-8 character. REQUIRES: 0 <= id < vocab_size(). An id without a token gives no bytes.
  virtual std::string token_bytes(int32_t id, bool skip_special) const = 0;
  virtual std::string token_name(
      int32_t id) const = 0;  // as in the vocabulary file: "Ġhello", "<|im_end|>"
  virtual int32_t token_id(std::string_view name) const = 0;  // -1 if there is none
  virtual bool is_special(int32_t id) const = 0;
  virtual int32_t vocab_size() const = 0;

  virtual int32_t bos_id() const = 0;                       // -1 if none
  virtual const std::vector<int32_t>& eos_ids() const = 0;  // all ids that end a generation
};

// Whole decoding: invalid or incomplete UTF-8 becomes U+FFFD.
std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special);

// Decoding token by token, never splitting a UTF-8 character; the concatenation of all push() and
// finish() equals decode(). One a choice; single-threaded.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  std::string push(int32_t id);  // the text that has become certain; may be empty
  std::string finish();          // what was held back: U+FFFD for an incomplete character

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  std::string pending_;  // at most 3 bytes: the start of an incomplete character
};

// Throws ConfigError naming the file, the key, what was found and what is wanted.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& folder);

// What GGUF metadata says of a vocabulary (tokenizer.ggml.*).
struct GgufVocab {
  std::string model;  // "gpt2"
  std::string pre;    // "smollm", "llama-bpe", "qwen2", ...
  std::vector<std::string> tokens;
  std::vector<int32_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;
  int32_t bos_id = -1, eos_id = -1, eot_id = -1, eom_id = -1, unknown_id = -1, padding_id = -1;
  std::optional<bool> add_bos, add_eos;  // absent: as models with this `pre` do it
};
// Throws ConfigError naming the key, what was found and what is wanted.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(GgufVocab vocab);

}  // namespace baton
