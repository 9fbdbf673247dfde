// Encodes and decodes strings for tokenizer_equivalence.py.
//   tokenizer-driver FOLDER        the tokenizer.json in FOLDER
//   tokenizer-driver --gguf FILE   a vocabulary as JSON: the fields of GgufVocab
// Standard input: strings, each u32 little-endian length and bytes. Standard output, a line each:
// JSON {"ids": with special tokens, "plain": without, "literal": control tokens as text,
//       "text": ids decoded, "kept": the same with special tokens, "pieces": ids decoded one by
//       one},
// or {"error": "..."}. A file that is refused: {"refused": "..."} and exit status 1.
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "model/text/tokenizer.h"

namespace baton {
namespace {

using nlohmann::json;

std::unique_ptr<Tokenizer> load_gguf_dump(const std::string& path) {
  std::ifstream file(path);
  const json dump = json::parse(file);
  GgufVocab vocab;
  vocab.model = dump.at("model");
  vocab.pre = dump.at("pre");
  vocab.tokens = dump.at("tokens").get<std::vector<std::string>>();
  vocab.token_types = dump.at("token_types").get<std::vector<int32_t>>();
  vocab.merges = dump.at("merges").get<std::vector<std::string>>();
  vocab.bos_id = dump.value("bos_id", -1);
  vocab.eos_id = dump.value("eos_id", -1);
  if (dump.contains("add_bos")) vocab.add_bos = dump["add_bos"].get<bool>();
  return make_gguf_tokenizer(std::move(vocab));
}

bool read_string(std::istream& in, std::string* text) {
  uint8_t size[4];
  if (!in.read(reinterpret_cast<char*>(size), sizeof(size))) return false;
  text->resize(size[0] | size[1] << 8 | size[2] << 16 | static_cast<uint32_t>(size[3]) << 24);
  return static_cast<bool>(in.read(text->data(), static_cast<std::streamsize>(text->size())));
}

json answer(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, {.add_special_tokens = true, .parse_special = true});
  if (!ids.ok()) return {{"error", ids.status().to_string()}};
  const auto plain = tokenizer.encode(text, {.add_special_tokens = false, .parse_special = true});
  const auto literal =
      tokenizer.encode(text, {.add_special_tokens = false, .parse_special = false});
  Detokenizer detokenizer(tokenizer, /*skip_special=*/false);
  std::string pieces;
  for (const int32_t id : *ids) pieces += detokenizer.push(id);
  pieces += detokenizer.finish();
  return {{"ids", *ids},
          {"plain", *plain},
          {"literal", *literal},
          {"text", decode(tokenizer, *ids, /*skip_special=*/true)},
          {"kept", decode(tokenizer, *ids, /*skip_special=*/false)},
          {"pieces", pieces}};
}

int run(int argc, char** argv) {
  const bool gguf = argc == 3 && std::strcmp(argv[1], "--gguf") == 0;
  if (!gguf && argc != 2) {
    std::cerr << "usage: tokenizer-driver FOLDER | --gguf FILE\n";
    return 2;
  }
  const auto tokenizer = gguf ? load_gguf_dump(argv[2]) : load_tokenizer_json(argv[1]);
  std::string text;
  while (read_string(std::cin, &text)) std::cout << answer(*tokenizer, text).dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    return baton::run(argc, argv);
  } catch (const baton::ConfigError& error) {
    std::cout << nlohmann::json{{"refused", error.what()}}.dump() << '\n';
    return 1;
  }
}
