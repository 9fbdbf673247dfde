#include "cli/generate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/status.h"
#include "cli/local_generator.h"
#include "model/model_config.h"
#include "model/safetensors.h"
#include "model/text/chat_template.h"
#include "model/text_files.h"

namespace baton {
namespace {

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw ConfigError(result.status().message());
  return std::move(*result);
}

std::vector<TokenId> encode_chat(const GenerateOptions& options, const Tokenizer& tokenizer) {
  const std::string source = load_chat_template(options.model);
  if (source.empty()) throw ConfigError(options.model + ": has no chat template; use --prompt");
  nlohmann::ordered_json context;
  context["messages"] = nlohmann::ordered_json::array();
  if (!options.system.empty()) {
    context["messages"].push_back({{"role", "system"}, {"content", options.system}});
  }
  context["messages"].push_back({{"role", "user"}, {"content", options.chat}});
  context["add_generation_prompt"] = true;
  for (const auto& [name, text] : load_special_tokens(options.model)) context[name] = text;
  const std::vector<TextSpan> spans =
      value_or_throw(ChatTemplate(source).render(context, std::time(nullptr)));
  return value_or_throw(tokenizer.encode_spans(spans, /*add_special_tokens=*/false));
}

std::vector<TokenId> encode_prompt(const GenerateOptions& options, const Tokenizer* tokenizer) {
  if (!options.token_ids.empty()) return options.token_ids;
  if (tokenizer == nullptr) {
    throw ConfigError(options.model + ": has no tokeniser; use --token-ids");
  }
  if (!options.chat.empty()) return encode_chat(options, *tokenizer);
  return value_or_throw(tokenizer->encode(options.prompt, {}));
}

void add_logit_biases(const std::vector<std::string>& texts, SamplingSpec* spec) {
  for (const std::string& text : texts) {
    TokenId id = 0;
    float bias = 0;
    int end = 0;
    if (std::sscanf(text.c_str(), "%d:%f%n", &id, &bias, &end) != 2 ||
        static_cast<size_t>(end) != text.size()) {
      throw ConfigError("--logit-bias: got '" + text + "', want ID:BIAS such as 42:-100");
    }
    spec->logit_bias.emplace_back(id, bias);
  }
}

// Prints one choice's tokens as text or ids; the only choice streams, several wait for their turn.
class ChoicePrinter {
 public:
  ChoicePrinter(const Tokenizer* tokenizer, bool print_ids) : print_ids_(print_ids) {
    if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, /*skip_special=*/true);
  }
  void push(TokenId token) {
    if (print_ids_ || !detokenizer_) {
      text_ += (first_ ? "" : " ") + std::to_string(token);
    } else {
      text_ += detokenizer_->push(token);
    }
    first_ = false;
  }
  void finish() {
    if (!print_ids_ && detokenizer_) text_ += detokenizer_->finish();
  }
  void print() {
    std::fwrite(text_.data(), 1, text_.size(), stdout);
    std::fflush(stdout);
    text_.clear();
  }

 private:
  const bool print_ids_;
  std::optional<Detokenizer> detokenizer_;
  std::string text_;
  bool first_ = true;
};

double rate(int64_t tokens, int64_t us) {
  return us == 0 ? 0 : static_cast<double>(tokens) * 1e6 / static_cast<double>(us);
}

void print_stats(const GenerationStats& stats, const SamplingSpec& spec) {
  std::fprintf(
      stderr, "prefill %d tokens, %.1f tokens/s; decode %d tokens, %.1f tokens/s; seed %llu\n",
      stats.prompt_tokens, rate(stats.prompt_tokens, stats.prefill_us), stats.decoded_tokens,
      rate(stats.decoded_tokens, stats.decode_us), static_cast<unsigned long long>(spec.seed));
}

void print_choices(std::vector<ChoicePrinter>& printers) {
  for (size_t c = 0; c < printers.size(); ++c) {
    if (printers.size() > 1) std::printf("--- choice %zu\n", c);
    printers[c].finish();
    printers[c].print();
    std::printf("\n");
  }
  std::fflush(stdout);  // before the statistics on stderr
}

}  // namespace

void generate(const GenerateOptions& options) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options.model);
  const std::vector<TokenId> prompt = encode_prompt(options, tokenizer.get());

  SamplingSpec spec = options.spec;
  spec.eos_ids = read_model_config(options.model).eos_ids;
  if (tokenizer != nullptr) {
    spec.eos_ids.insert(spec.eos_ids.end(), tokenizer->eos_ids().begin(),
                        tokenizer->eos_ids().end());
  }
  add_logit_biases(options.logit_bias, &spec);

  // Every choice has its own pages, rounded up.
  const int64_t tokens_max =
      (static_cast<int64_t>(prompt.size()) + spec.max_tokens + options.engine.page_tokens) * spec.n;
  LocalGenerator generator(options.model, options.engine, tokens_max);
  std::vector<ChoicePrinter> printers;
  for (int32_t c = 0; c < spec.n; ++c) printers.emplace_back(tokenizer.get(), options.print_ids);
  std::vector<float> logits;
  const GenerationStats stats = value_or_throw(generator.generate(
      prompt, spec,
      [&](const Sampled& sampled) {
        ChoicePrinter& printer = printers[static_cast<size_t>(sampled.slot)];
        printer.push(sampled.token);
        if (spec.n == 1) printer.print();
      },
      options.logits_path.empty() ? nullptr : &logits));
  if (spec.max_tokens > 0) print_choices(printers);
  if (!options.logits_path.empty()) {
    const auto rows = static_cast<int64_t>(prompt.size());
    write_safetensors(
        options.logits_path,
        {{"logits", {.shape = {rows, generator.facts().vocab_size}, .data = std::move(logits)}}});
  }
  print_stats(stats, spec);
}

namespace {

void add_sampling_options(CLI::App& command, SamplingSpec& spec) {
  command.add_option("--max-tokens", spec.max_tokens, "Tokens to generate, each choice")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--temperature", spec.temperature, "0 takes the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--top-k", spec.top_k, "Only the K likeliest tokens; 0 = all");
  command.add_option("--top-p", spec.top_p, "Only the likeliest tokens that make up this share")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--min-p", spec.min_p, "Only tokens of this share of the likeliest one's")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--seed", spec.seed, "Default: at random");
  command.add_option("--presence-penalty", spec.presence_penalty, "Off a generated token's logit");
  command.add_option("--frequency-penalty", spec.frequency_penalty, "The same for each time");
  command
      .add_option("--repetition-penalty", spec.repetition_penalty,
                  "Divides the logit of every token seen")
      ->check(CLI::PositiveNumber);
  command.add_flag("--ignore-eos", spec.ignore_eos, "Go on after the end-of-text token");
  command.add_option("--n", spec.n, "Choices")->check(CLI::Range(1, 128));
}

void add_engine_options(CLI::App& command, EngineOptions& engine) {
  command.add_option("--device", engine.device, "cpu, cuda or cuda:N");
  command.add_option("--page-tokens", engine.page_tokens, "Tokens in a KV page");
  command.add_option("--threads", engine.threads, "Compute threads; 0 = all cores");
  command.add_option("--kv-dtype", engine.kv_dtype, "auto, f32, f16 or bf16");
  command.add_option("--isa", engine.isa, "auto, portable, avx2 or avx512_vnni");
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  options->spec.temperature = 0;
  options->spec.max_tokens = 128;
  options->spec.seed = std::random_device{}();
  CLI::App* command = app.add_subcommand("generate", "Complete a prompt in this process");
  command->add_option("--model", options->model, "Hugging Face folder or GGUF file")->required();
  CLI::Option_group* input = command->add_option_group("input");
  input->add_option("--prompt", options->prompt, "Text to complete");
  input->add_option("--chat", options->chat, "A user's message, through the chat template");
  input->add_option("--token-ids", options->token_ids, "Ids of the prompt: 5,9,12")->delimiter(',');
  input->require_option(1);
  command->add_option("--system", options->system, "System message before --chat");
  add_sampling_options(*command, options->spec);
  command->add_option("--logit-bias", options->logit_bias, "ID:BIAS, may be repeated");
  command->add_flag("--print-ids", options->print_ids, "Print token ids instead of text");
  command->add_option("--logits", options->logits_path,
                      "Write the prompt's logits, float32 [tokens, vocab], as safetensors");
  add_engine_options(*command, options->engine);
  command->callback([options] { generate(*options); });
}

}  // namespace baton
