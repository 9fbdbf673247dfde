// load_tokenizer_json of tokenizer.h: a Hugging Face model folder.
// Format: tokenizer.json as written by `tokenizers`; tokenizer_config.json, generation_config.json
// and config.json for the tokens that begin and end a text.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <unordered_map>

#include "base/status.h"
#include "model/text/bpe_tokenizer.h"
#include "model/text/json_node.h"
#include "model/text/tokenizer_json_steps.h"

namespace baton {
namespace {

constexpr int64_t kTokenIdMax = (1 << 24) - 1;  // no vocabulary comes near; bounds the tables

void read_vocab(const JsonNode& model, BpeVocab* vocab) {
  const JsonNode tokens = model.at("vocab");
  tokens.require_object();
  for (const auto& [token, id_value] : tokens.value().items()) {
    const JsonNode node(id_value, tokens.place() + "[\"" + token + "\"]");
    const auto id = static_cast<size_t>(node.integer(0, kTokenIdMax));
    if (id >= vocab->tokens.size()) vocab->tokens.resize(id + 1);
    if (!vocab->tokens[id].empty()) {
      node.fail("an id that \"" + vocab->tokens[id] + "\" does not have already");
    }
    vocab->tokens[id] = token;
  }
  if (vocab->tokens.empty()) tokens.fail("at least one token");
}

void read_merges(const JsonNode& model, BpeVocab* vocab) {
  const JsonNode merges = model.at("merges");
  const size_t count = merges.array_size();
  vocab->merges.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& merge = merges.value()[i];
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;  // the first line of a merges.txt
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        merges.at(i).fail("two tokens with one blank between them");
      }
      vocab->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      vocab->merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      merges.at(i).fail("\"a b\" or [\"a\", \"b\"]");
    }
  }
}

void read_model(const JsonNode& model, BpeVocab* vocab) {
  if (const auto type = model.find("type"); type && type->string() != "BPE") type->fail("BPE");
  if (const auto dropout = model.find("dropout"); dropout && dropout->value() != 0) {
    dropout->fail("null: encoding is not random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto affix = model.find(key); affix && !affix->string().empty()) affix->fail("null");
  }
  vocab->ignore_merges = model.boolean_or("ignore_merges", false);
  vocab->byte_fallback = model.boolean_or("byte_fallback", false);
  vocab->fuse_unknown = model.boolean_or("fuse_unk", false);
  if (const auto unknown = model.find("unk_token")) vocab->unknown_token = unknown->string();
  read_vocab(model, vocab);
  read_merges(model, vocab);
}

AddedToken read_added_token(const JsonNode& node) {
  AddedToken token;
  node.at("id").integer(0, kTokenIdMax);
  token.content = node.at("content").string();
  token.special = node.at("special").boolean();
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  return token;
}

bool same_flags(const AddedToken& a, const AddedToken& b) {
  return a.special == b.special && a.single_word == b.single_word && a.lstrip == b.lstrip &&
         a.rstrip == b.rstrip && a.normalized == b.normalized;
}

// An added token that the model does not have gets the next free id, as `tokenizers` does it,
// whatever the file's "id" says.
void read_added_tokens(const JsonNode& root, TokenizerParts* parts) {
  const std::optional<JsonNode> list = root.find("added_tokens");
  if (!list) return;
  std::unordered_map<std::string_view, int32_t> model_ids;
  for (size_t id = 0; id < parts->vocab.tokens.size(); ++id) {
    const std::string& token = parts->vocab.tokens[id];
    if (!token.empty()) model_ids.emplace(token, static_cast<int32_t>(id));
  }
  const auto model_size = static_cast<int32_t>(model_ids.size());
  int32_t added_id_max = -1;
  std::unordered_map<std::string, size_t> seen;
  for (size_t i = 0; i < list->array_size(); ++i) {
    AddedToken token = read_added_token(list->at(i));
    if (token.content.empty()) continue;
    const auto [first, is_new] = seen.emplace(token.content, parts->added.size());
    if (!is_new) {
      if (same_flags(parts->added[first->second], token)) continue;
      list->at(i).fail("the same flags as in the token's first entry");
    }
    const auto known = model_ids.find(token.content);
    token.id = known != model_ids.end() ? known->second : std::max(added_id_max + 1, model_size);
    added_id_max = std::max(added_id_max, token.id);
    parts->added.push_back(std::move(token));
  }
}

// Finds ids of tokens by name while the tokeniser does not exist yet.
int32_t find_id(const TokenizerParts& parts, const std::string& name) {
  for (const AddedToken& token : parts.added) {
    if (token.content == name) return token.id;
  }
  const auto found = std::find(parts.vocab.tokens.begin(), parts.vocab.tokens.end(), name);
  if (name.empty() || found == parts.vocab.tokens.end()) return -1;
  return static_cast<int32_t>(found - parts.vocab.tokens.begin());
}

// "eos_token": a name, or an added token as an object.
int32_t read_named_token(const JsonNode& node, const TokenizerParts& parts) {
  const JsonNode name = node.value().is_object() ? node.at("content") : node;
  const int32_t id = find_id(parts, name.string());
  if (id < 0) name.fail("a token of the vocabulary");
  return id;
}

void add_eos(int32_t id, TokenizerParts* parts) {
  std::vector<int32_t>& ids = parts->eos_ids;
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

// "bos_token_id" and "eos_token_id" of config.json and generation_config.json: an id or a list.
void read_token_ids(const JsonNode& config, TokenizerParts* parts) {
  if (const auto bos = config.find("bos_token_id"); bos && parts->bos_id < 0) {
    const bool is_list = bos->value().is_array() && bos->array_size() > 0;
    parts->bos_id = static_cast<int32_t>((is_list ? bos->at(0) : *bos).integer(0, kTokenIdMax));
  }
  const auto eos = config.find("eos_token_id");
  if (!eos) return;
  if (!eos->value().is_array()) {
    add_eos(static_cast<int32_t>(eos->integer(0, kTokenIdMax)), parts);
    return;
  }
  for (size_t i = 0; i < eos->array_size(); ++i) {
    add_eos(static_cast<int32_t>(eos->at(i).integer(0, kTokenIdMax)), parts);
  }
}

void read_special_ids(const std::string& folder, TokenizerParts* parts) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  if (std::filesystem::exists(path("tokenizer_config.json"))) {
    const nlohmann::json config = read_json_file(path("tokenizer_config.json"));
    const JsonNode root(config, path("tokenizer_config.json") + ":");
    if (const auto bos = root.find("bos_token")) parts->bos_id = read_named_token(*bos, *parts);
    if (const auto eos = root.find("eos_token")) add_eos(read_named_token(*eos, *parts), parts);
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!std::filesystem::exists(path(name))) continue;
    const nlohmann::json config = read_json_file(path(name));
    const JsonNode root(config, path(name) + ":");
    read_token_ids(root, parts);
    if (const auto text_config = root.find("text_config")) read_token_ids(*text_config, parts);
  }
}

}  // namespace

// "truncation" and "padding" of the file are leftovers of training: lengths are the server's
// matter.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "tokenizer.json").string();
  const nlohmann::json file = read_json_file(path);
  const JsonNode root(file, path + ":");
  TokenizerParts parts;
  read_model(root.at("model"), &parts.vocab);
  read_added_tokens(root, &parts);
  read_normalizer(root, &parts);
  read_pre_tokenizer(root, &parts);
  read_post_processor(root, &parts);
  check_decoder(root);
  read_special_ids(folder, &parts);
  return std::make_unique<BpeTokenizer>(std::move(parts), path + ": model");
}

}  // namespace baton
