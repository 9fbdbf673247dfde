#include "model/text_files.h"

#include <filesystem>

#include "base/status.h"
#include "model/gguf.h"
#include "model/json_file.h"

namespace baton {
namespace {

using Json = nlohmann::json;

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// tokenizer_config.json, or an empty object.
Json read_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  Json config = file_exists(path) ? parse_json_file(path) : Json::object();
  if (!config.is_object()) throw ConfigError(path + ": not a JSON object");
  return config;
}

std::string named_template(const Json& list, const std::string& folder) {
  for (const Json& entry : list) {
    if (entry.is_object() && entry.value("name", Json()) == "default" &&
        entry.contains("template") && entry["template"].is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  throw ConfigError(folder + "/tokenizer_config.json: chat_template is a list without a 'default'");
}

int32_t vocab_id(const GgufMetadata& metadata, const char* name, size_t vocab_size) {
  const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
  const int64_t id = metadata.integer(key, -1);
  if (id < -1 || id >= static_cast<int64_t>(vocab_size)) {
    throw ConfigError(metadata.file() + ": " + key + " is " + std::to_string(id) +
                      ", but there are " + std::to_string(vocab_size) + " tokens");
  }
  return static_cast<int32_t>(id);
}

GgufVocab read_gguf_vocab(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata;
  GgufVocab vocab;
  vocab.model = metadata.string("tokenizer.ggml.model");
  vocab.pre = metadata.string("tokenizer.ggml.pre", "");
  vocab.tokens = metadata.strings("tokenizer.ggml.tokens");
  vocab.merges = metadata.strings("tokenizer.ggml.merges");
  for (const int64_t type : metadata.integers("tokenizer.ggml.token_type")) {
    vocab.token_types.push_back(static_cast<int32_t>(type));
  }
  const size_t size = vocab.tokens.size();
  if (size == 0) throw ConfigError(metadata.file() + ": tokenizer.ggml.tokens is missing or empty");
  if (!vocab.token_types.empty() && vocab.token_types.size() != size) {
    throw ConfigError(metadata.file() + ": tokenizer.ggml.token_type has " +
                      std::to_string(vocab.token_types.size()) + " entries for " +
                      std::to_string(size) + " tokens");
  }
  const StoredTensor* embedding = file.tensors.find("token_embd.weight");
  if (embedding != nullptr && embedding->shape[0] < static_cast<int64_t>(size)) {
    throw ConfigError(metadata.file() + ": " + std::to_string(size) + " tokens, but only " +
                      std::to_string(embedding->shape[0]) + " rows in token_embd.weight");
  }
  vocab.bos_id = vocab_id(metadata, "bos", size);
  vocab.eos_id = vocab_id(metadata, "eos", size);
  vocab.eot_id = vocab_id(metadata, "eot", size);
  vocab.eom_id = vocab_id(metadata, "eom", size);
  vocab.unknown_id = vocab_id(metadata, "unknown", size);
  vocab.padding_id = vocab_id(metadata, "padding", size);
  vocab.add_bos = metadata.boolean("tokenizer.ggml.add_bos_token", false);
  vocab.add_eos = metadata.boolean("tokenizer.ggml.add_eos_token", false);
  return vocab;
}

std::map<std::string, std::string> hf_special_tokens(const std::string& folder) {
  std::map<std::string, std::string> tokens;
  const Json config = read_tokenizer_config(folder);
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    // Either the text itself or an added token's object.
    if (value.is_string()) {
      tokens[key] = value.get<std::string>();
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[key] = value["content"].get<std::string>();
    }
  }
  return tokens;
}

std::map<std::string, std::string> gguf_special_tokens(const GgufFile& file) {
  const std::vector<std::string> names = file.metadata.strings("tokenizer.ggml.tokens");
  std::map<std::string, std::string> tokens;
  for (const auto& [key, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"bos_token", "bos"},
                                                                  {"eos_token", "eos"},
                                                                  {"unk_token", "unknown"},
                                                                  {"pad_token", "padding"}}) {
    const int32_t id = vocab_id(file.metadata, name, names.size());
    if (id >= 0) tokens[key] = names[static_cast<size_t>(id)];
  }
  return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (!is_folder(path)) {
    const GgufFile file = open_gguf(path);
    if (!file.metadata.has("tokenizer.ggml.model")) return nullptr;
    return make_gguf_tokenizer(read_gguf_vocab(file));
  }
  if (file_exists(path + "/tokenizer.json")) return load_tokenizer_json(path);
  if (file_exists(path + "/tokenizer.model")) {
    throw ConfigError(path + ": tokenizer.model without tokenizer.json is not supported");
  }
  return nullptr;
}

std::string load_chat_template(const std::string& path) {
  if (!is_folder(path)) return open_gguf(path).metadata.string("tokenizer.chat_template", "");
  if (file_exists(path + "/chat_template.jinja")) {
    return read_text_file(path + "/chat_template.jinja");
  }
  const Json config = read_tokenizer_config(path);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) return named_template(*found, path);
  throw ConfigError(path + "/tokenizer_config.json: chat_template is neither text nor a list");
}

std::map<std::string, std::string> load_special_tokens(const std::string& path) {
  return is_folder(path) ? hf_special_tokens(path) : gguf_special_tokens(open_gguf(path));
}

}  // namespace baton
