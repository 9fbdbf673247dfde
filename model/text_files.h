// The text side of a model's files: tokeniser, chat template, special tokens. From a Hugging Face
// folder or a GGUF file; weights are not touched, so the router calls it too. Start-up only; throws
// ConfigError.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "model/text/tokenizer.h"

namespace baton {

// Null when the model has no tokeniser at all (models that are only fed token ids).
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// chat_template.jinja, or tokenizer_config.json's chat_template (of a list the one named
// "default"), or GGUF's tokenizer.chat_template. Empty when there is none.
std::string load_chat_template(const std::string& path);

// What a chat template may refer to: "bos_token" -> "<s>", "eos_token", "unk_token", "pad_token",
// ... as far as the model has them.
std::map<std::string, std::string> load_special_tokens(const std::string& path);

}  // namespace baton
