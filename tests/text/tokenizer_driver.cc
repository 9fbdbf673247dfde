// Encodes and decodes strings for tokenizer_equivalence.py.
//   tokenizer-driver FOLDER        the tokenizer.json in FOLDER
//   tokenizer-driver --gguf FILE   a vocabulary as JSON: the fields of GgufVocab
// Standard input: strings, each u32 little-endian length and bytes. Standard output, a line each:
// JSON {"ids": with special tokens, "plain": without, "literal": control tokens as text,
//       "text": ids decoded, "kept": the same with special tokens, "pieces": ids decoded one by
//       one},
// or {"error": "..."}. With --ids after the file, only "ids". A file that is refused: {"refused":
// "..."} and exit status 1.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

json answer(const Tokenizer& tokenizer, const std::string& text, bool only_ids) {
  const auto ids = tokenizer.encode(text, {.add_special_tokens = true, .parse_special = true});
  if (!ids.ok()) return {{"error", ids.status().to_string()}};
  if (only_ids) return {{"ids", *ids}};
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

int run(std::vector<std::string> arguments) {
  const bool only_ids = !arguments.empty() && arguments.back() == "--ids";
  if (only_ids) arguments.pop_back();
  const bool gguf = arguments.size() == 2 && arguments[0] == "--gguf";
  if (!gguf && arguments.size() != 1) {
    std::cerr << "usage: tokenizer-driver FOLDER [--ids] | --gguf FILE [--ids]\n";
    return 2;
  }
  const auto tokenizer = gguf ? load_gguf_dump(arguments[1]) : load_tokenizer_json(arguments[0]);
  std::string text;
  while (read_string(std::cin, &text)) {
    std::cout << answer(*tokenizer, text, only_ids).dump() << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    return baton::run({argv + 1, argv + argc});
  } catch (const baton::ConfigError& error) {
    std::cout << nlohmann::json{{"refused", error.what()}}.dump() << '\n';
    return 1;
  }
}
