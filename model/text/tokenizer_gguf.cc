// make_gguf_tokenizer of tokenizer.h: a byte-level BPE vocabulary from GGUF metadata.
// Format: llama.cpp, docs of the keys tokenizer.ggml.*.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/status.h"
#include "model/text/bpe_tokenizer.h"
#include "model/text/gguf_pre_tokenizers.h"

namespace baton {
namespace {

constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;
constexpr int32_t kTokenTypeMax = 6;

// Tokens that end a turn or a text in the model families we know, whatever eos_token_id says.
constexpr std::array<std::string_view, 16> kEndOfGeneration = {
    "<|eot_id|>", "<|im_end|>",    "<|end|>",         "<|return|>",
    "<|call|>",   "<end_of_turn>", "<turn|>",         "<|endoftext|>",
    "</s>",       "<|eom_id|>",    "<|end_of_text|>", "<EOT>",
    "_<EOT>",     "[EOT]",         "<eos>",           "<end_of_utterance>"};

using TokenIds = std::unordered_map<std::string_view, int32_t>;

[[noreturn]] void fail(const std::string& key, const std::string& got, const std::string& want) {
  throw ConfigError("GGUF tokenizer.ggml." + key + ": got " + got + ", want " + want);
}

std::string quote(std::string_view text) {
  return std::string(1, '"').append(text).append(1, '"');
}

const GgufPreTokenizer& find_pre_tokenizer(const std::string& name) {
  std::string known;
  for (const GgufPreTokenizer& entry : gguf_pre_tokenizers()) {
    for (const std::string_view entry_name : entry.names) {
      if (entry_name == name) return entry;
      known.append(known.empty() ? "" : ", ").append(entry_name);
    }
  }
  fail("pre", quote(name), "one of " + known);
}

TokenIds check_tokens(const GgufVocab& vocab) {
  if (vocab.model != "gpt2") fail("model", quote(vocab.model), "\"gpt2\" (byte-level BPE)");
  if (vocab.tokens.empty()) fail("tokens", "none", "at least one token");
  if (!vocab.token_types.empty() && vocab.token_types.size() != vocab.tokens.size()) {
    fail("token_type", std::to_string(vocab.token_types.size()) + " entries",
         std::to_string(vocab.tokens.size()) + ", one for each of tokenizer.ggml.tokens");
  }
  for (size_t id = 0; id < vocab.token_types.size(); ++id) {
    const int32_t type = vocab.token_types[id];
    if (type >= 1 && type <= kTokenTypeMax) continue;
    fail("token_type[" + std::to_string(id) + "]", std::to_string(type), "a type from 1 to 6");
  }
  TokenIds ids;
  ids.reserve(vocab.tokens.size());
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const auto [first, is_new] = ids.emplace(vocab.tokens[id], static_cast<int32_t>(id));
    if (is_new) continue;
    fail("tokens[" + std::to_string(id) + "]", quote(vocab.tokens[id]),
         "a token that id " + std::to_string(first->second) + " does not have already");
  }
  return ids;
}

void check_ids(const GgufVocab& vocab) {
  const std::pair<const char*, int32_t> ids[] = {
      {"bos_token_id", vocab.bos_id},         {"eos_token_id", vocab.eos_id},
      {"eot_token_id", vocab.eot_id},         {"eom_token_id", vocab.eom_id},
      {"unknown_token_id", vocab.unknown_id}, {"padding_token_id", vocab.padding_id}};
  for (const auto& [key, id] : ids) {
    if (id >= -1 && id < static_cast<int64_t>(vocab.tokens.size())) continue;
    fail(key, std::to_string(id),
         "an id below the number of tokens, " + std::to_string(vocab.tokens.size()));
  }
}

void read_merges(const GgufVocab& vocab, BpeVocab* bpe) {
  bpe->merges.reserve(vocab.merges.size());
  for (size_t i = 0; i < vocab.merges.size(); ++i) {
    const std::string& merge = vocab.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      fail("merges[" + std::to_string(i) + "]", quote(merge),
           "two tokens with a blank between them");
    }
    bpe->merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
}

std::vector<AddedToken> read_added_tokens(const GgufVocab& vocab) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < vocab.token_types.size(); ++id) {
    const int32_t type = vocab.token_types[id];
    if (type != kControl && type != kUserDefined) continue;
    if (vocab.tokens[id].empty()) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = vocab.tokens[id];
    token.special = type == kControl;
    added.push_back(std::move(token));
  }
  return added;
}

std::vector<int32_t> find_eos_ids(const GgufVocab& vocab, const TokenIds& ids) {
  std::vector<int32_t> eos;
  const auto add = [&](int32_t id) {
    if (id >= 0 && std::find(eos.begin(), eos.end(), id) == eos.end()) eos.push_back(id);
  };
  add(vocab.eos_id);
  add(vocab.eot_id);
  add(vocab.eom_id);
  // In the Harmony format <|end|> ends a message, not the turn.
  const bool is_harmony = ids.contains("<|return|>") && ids.contains("<|call|>");
  for (const std::string_view name : kEndOfGeneration) {
    const auto found = ids.find(name);
    if (found == ids.end() || (is_harmony && name == "<|end|>")) continue;
    const int32_t type = vocab.token_types.empty() ? 1 : vocab.token_types[found->second];
    // Names such as </s> are also ordinary text (HTML); those with bars are not, whatever their
    // type.
    if (type == kControl || name.starts_with("<|")) add(found->second);
  }
  return eos;
}

}  // namespace

std::unique_ptr<Tokenizer> make_gguf_tokenizer(GgufVocab vocab) {
  const TokenIds ids = check_tokens(vocab);
  check_ids(vocab);
  const GgufPreTokenizer& pre = find_pre_tokenizer(vocab.pre);
  TokenizerParts parts;
  parts.nfc = pre.nfc;
  parts.vocab.ignore_merges = pre.ignore_merges;
  for (const std::string_view pattern : pre.patterns) {
    parts.pre_tokenizer.add_split(pattern, SplitBehavior::kIsolated, /*invert=*/false,
                                  "GGUF tokenizer.ggml.pre " + vocab.pre);
  }
  read_merges(vocab, &parts.vocab);
  parts.added = read_added_tokens(vocab);
  parts.bos_id = vocab.bos_id;
  parts.eos_ids = find_eos_ids(vocab, ids);
  if (vocab.add_bos.value_or(pre.add_bos) && vocab.bos_id >= 0) parts.prefix = {vocab.bos_id};
  if (vocab.add_eos.value_or(false) && vocab.eos_id >= 0) parts.suffix = {vocab.eos_id};
  parts.vocab.tokens = std::move(vocab.tokens);
  return std::make_unique<BpeTokenizer>(std::move(parts), "GGUF tokenizer.ggml");
}

}  // namespace baton
