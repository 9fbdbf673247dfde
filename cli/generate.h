// `baton generate`: one prompt through the model in this process, text to stdout as it comes. Main
// thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/messages.h"
#include "model/engine.h"

namespace CLI {
class App;
}

namespace baton {

struct GenerateOptions {
  std::string model;
  std::string prompt;              // text, completed as it is
  std::string chat;                // one user message through the chat template
  std::string system;              // a system message before it
  std::vector<TokenId> token_ids;  // instead of text
  SamplingSpec spec;
  std::vector<std::string> logit_bias;  // "id:bias"
  bool print_ids = false;
  std::string logits_path;  // safetensors file for the prompt's logits
  EngineOptions engine;
};

// Throws ConfigError, also for a request that does not fit.
void generate(const GenerateOptions& options);

// Adds the subcommand; its callback runs generate().
void add_generate_command(CLI::App& app);

}  // namespace baton
