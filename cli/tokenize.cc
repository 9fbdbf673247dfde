#include "cli/tokenize.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/text_files.h"

namespace baton {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string input;  // "-" = standard input
  bool decode = false;
};

std::vector<int32_t> parse_ids(const std::string& text, int32_t vocab_size) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',' || *at == '\n') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || id >= vocab_size) {
      throw ConfigError("token ids: got '" + std::string(at, std::min(end, at + 20)) +
                        "', want numbers from 0 to " + std::to_string(vocab_size - 1));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

void tokenize(const TokenizeOptions& options) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.model);
  if (tokenizer == nullptr) throw ConfigError(options.model + ": has no tokeniser");
  const std::string input =
      options.input != "-"
          ? options.input
          : std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  if (options.decode) {
    const std::string text =
        decode(*tokenizer, parse_ids(input, tokenizer->vocab_size()), /*skip_special=*/false);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  const Result<std::vector<int32_t>> ids = tokenizer->encode(input, {});
  if (!ids.ok()) throw ConfigError(ids.status().message());
  for (size_t i = 0; i < ids->size(); ++i) std::printf(i == 0 ? "%d" : " %d", (*ids)[i]);
  std::printf("\n");
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids, or back");
  command->add_option("--model", options->model, "Hugging Face folder or GGUF file")->required();
  command->add_flag("--decode", options->decode, "The input is ids; print their text");
  command->add_option("input", options->input, "Text, or - for standard input")->required();
  command->callback([options] { tokenize(*options); });
}

}  // namespace baton
