// A small byte-level vocabulary for tests, as GGUF metadata and as a tokenizer.json.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/text/byte_level.h"
#include "model/text/tokenizer.h"

namespace baton::testing {

// Ids 0 to 255 are the bytes; then " h", "el", "lo", " hel", " hello" (260), and 261 on the given.
inline GgufVocab small_vocab(const std::vector<std::string>& control_tokens) {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    vocab.tokens.push_back(to_byte_level({&raw, 1}));
  }
  for (const char* merge : {"Ġ h", "e l", "l o", "Ġh el", "Ġhel lo"}) {
    vocab.merges.push_back(merge);
    const size_t blank = vocab.merges.back().find(' ', 1);
    vocab.tokens.push_back(std::string(vocab.merges.back()).erase(blank, 1));
  }
  vocab.token_types.assign(vocab.tokens.size(), 1);
  for (const std::string& token : control_tokens) {
    vocab.tokens.push_back(token);
    vocab.token_types.push_back(3);
  }
  return vocab;
}

inline nlohmann::json small_tokenizer_json() {
  const GgufVocab vocab = small_vocab({});
  nlohmann::json tokens = nlohmann::json::object();
  for (size_t id = 0; id < vocab.tokens.size(); ++id) tokens[vocab.tokens[id]] = id;
  const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                     {"add_prefix_space", false},
                                     {"trim_offsets", true},
                                     {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", vocab.merges}}}};
}

inline nlohmann::json added_token(const std::string& content, bool special) {
  return {{"id", 261},       {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// A model folder that is removed with the object.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tokenizer-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  void write(const std::string& name, const nlohmann::json& content) const {
    write(name, content.dump());
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// What loading the folder is refused with; empty if it is not.
inline std::string refusal(const ModelFolder& folder) {
  try {
    load_tokenizer_json(folder.path());
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

inline std::string refusal(const nlohmann::json& tokenizer_json) {
  const ModelFolder folder;
  folder.write("tokenizer.json", tokenizer_json);
  return refusal(folder);
}

}  // namespace baton::testing
