#include "cli/local_generator.h"

#include <algorithm>
#include <utility>

#include "model/kv_plan.h"
#include "model/model_config.h"

namespace baton {
namespace {

// Float32 pages are the largest, so this is enough whatever dtype the model ends up with.
LoadedModel load(const std::string& path, EngineOptions options, int64_t tokens_max) {
  if (options.kv_bytes == 0) {
    const KvLayout layout =
        plan_kv_layout(read_model_config(path), options.page_tokens, Dtype::kF32);
    options.kv_bytes = kv_bytes_for(layout, tokens_max + options.page_tokens);
  }
  return load_model(path, options, nullptr);
}

}  // namespace

LocalGenerator::LocalGenerator(const std::string& path, EngineOptions options, int64_t tokens_max)
    : step_tokens_max_(options.step_tokens_max),
      model_(load(path, std::move(options), tokens_max)) {}

Result<GenerationStats> LocalGenerator::generate(
    const std::vector<TokenId>& prompt, const SamplingSpec& spec,
    const std::function<void(const Sampled&)>& on_token, std::vector<float>* prompt_logits) {
  if (Status status = check(prompt, spec); !status.ok()) return status;
  GenerationStats stats{.prompt_tokens = static_cast<int32_t>(prompt.size())};
  std::vector<ChoiceRun> choices = place(stats.prompt_tokens, spec);

  const auto take = [&](const StepOutput& output) {
    for (const Sampled& sampled : output.sampled) {
      ChoiceRun& choice = choices[static_cast<size_t>(sampled.slot)];
      choice.position = sampled.position;
      choice.ended = sampled.finish != FinishReason::kNone;
      on_token(sampled);
    }
  };

  StepInput input = first_step(prompt, spec, choices);
  const std::vector<Chunk> chunks = std::exchange(input.chunks, {});
  for (Chunk chunk : chunks) {
    chunk.all_logits = prompt_logits != nullptr;
    input.chunks = {std::move(chunk)};
    const StepOutput output = execute(std::exchange(input, {}), &stats.prefill_us);
    if (!output.error.empty()) return internal_error(output.error);
    if (prompt_logits != nullptr) {
      prompt_logits->insert(prompt_logits->end(), output.logits.begin(), output.logits.end());
    }
    take(output);
  }

  std::vector<PageCopy> copies = partial_page_copies(stats.prompt_tokens, choices);
  for (;;) {
    input = decode_step(choices);
    if (input.chunks.empty()) break;
    stats.decoded_tokens += static_cast<int32_t>(input.chunks.size());
    input.page_copies = std::exchange(copies, {});
    const StepOutput output = execute(std::move(input), &stats.decode_us);
    if (!output.error.empty()) return internal_error(output.error);
    take(output);
  }
  if (spec.max_tokens > 0) close(choices);
  return stats;
}

Status LocalGenerator::check(const std::vector<TokenId>& prompt, const SamplingSpec& spec) const {
  if (prompt.empty()) return invalid_argument("prompt: got no tokens, want at least one");
  for (const TokenId id : prompt) {
    if (id < 0 || id >= facts().vocab_size) {
      return invalid_argument("prompt: got token " + std::to_string(id) + ", want 0 to " +
                              std::to_string(facts().vocab_size - 1));
    }
  }
  const auto prompt_len = static_cast<int64_t>(prompt.size());
  if (prompt_len + (spec.max_tokens > 0 ? 1 : 0) > facts().context_len) {
    return invalid_argument("prompt: got " + std::to_string(prompt_len) +
                            " tokens, but the context has " + std::to_string(facts().context_len));
  }
  const KvGroup& group = layout().groups[0];
  const int64_t length = std::min<int64_t>(facts().context_len, prompt_len + spec.max_tokens);
  const int64_t pages = int64_t{group.pages_for(static_cast<int32_t>(length))} * spec.n;
  if (pages > model_.pools[0]->num_pages()) {
    return invalid_argument("request: got " + std::to_string(pages) + " KV pages, want at most " +
                            std::to_string(model_.pools[0]->num_pages()));
  }
  return {};
}

// Choice 0 takes the first pages; the others see its whole pages of the prompt and have their own
// from there on.
std::vector<LocalGenerator::ChoiceRun> LocalGenerator::place(int32_t prompt_len,
                                                             const SamplingSpec& spec) const {
  const int32_t length = std::min(facts().context_len, prompt_len + spec.max_tokens);
  std::vector<ChoiceRun> choices(static_cast<size_t>(spec.max_tokens > 0 ? spec.n : 1));
  std::vector<int32_t> next_page(layout().groups.size(), 0);
  for (size_t c = 0; c < choices.size(); ++c) {
    choices[c].slot = static_cast<int32_t>(c);
    choices[c].ended = spec.max_tokens == 0;
    for (size_t g = 0; g < layout().groups.size(); ++g) {
      const KvGroup& group = layout().groups[g];
      std::vector<int32_t>& table = choices[c].block_tables.emplace_back();
      const int32_t shared = c == 0 ? 0 : prompt_len / group.page_tokens;
      for (int32_t i = 0; i < group.pages_for(length); ++i) {
        table.push_back(i < shared ? choices[0].block_tables[g][static_cast<size_t>(i)]
                                   : next_page[g]++);
      }
    }
  }
  return choices;
}

// Slots, and the prompt in chunks of step_tokens_max; the last one samples every choice's first
// token.
StepInput LocalGenerator::first_step(const std::vector<TokenId>& prompt, const SamplingSpec& spec,
                                     const std::vector<ChoiceRun>& choices) const {
  StepInput input;
  const auto prompt_len = static_cast<int32_t>(prompt.size());
  for (int32_t at = 0; at < prompt_len; at += step_tokens_max_) {
    const int32_t end = std::min(prompt_len, at + step_tokens_max_);
    input.chunks.push_back({.first_pos = at,
                            .tokens = {prompt.begin() + at, prompt.begin() + end},
                            .block_tables = choices[0].block_tables});
  }
  if (spec.max_tokens == 0) return input;
  for (const ChoiceRun& choice : choices) {
    input.opened_slots.push_back({.slot = choice.slot,
                                  .spec = spec,
                                  .choice = spec.first_choice + choice.slot,
                                  .prompt_len = prompt_len,
                                  .tokens = prompt});
    input.chunks.back().sample_slots.push_back(choice.slot);
  }
  return input;
}

std::vector<PageCopy> LocalGenerator::partial_page_copies(
    int32_t prompt_len, const std::vector<ChoiceRun>& choices) const {
  std::vector<PageCopy> copies;
  for (size_t g = 0; g < layout().groups.size(); ++g) {
    const int32_t page_tokens = layout().groups[g].page_tokens;
    if (prompt_len % page_tokens == 0) continue;
    const auto partial = static_cast<size_t>(prompt_len / page_tokens);
    for (size_t c = 1; c < choices.size(); ++c) {
      copies.push_back({.group = static_cast<int32_t>(g),
                        .src_page = choices[0].block_tables[g][partial],
                        .dst_page = choices[c].block_tables[g][partial]});
    }
  }
  return copies;
}

StepInput LocalGenerator::decode_step(const std::vector<ChoiceRun>& choices) const {
  StepInput input;
  for (const ChoiceRun& choice : choices) {
    if (choice.ended) continue;
    input.chunks.push_back({.seq = static_cast<uint64_t>(choice.slot),
                            .first_pos = choice.position,
                            .use_last = true,
                            .block_tables = choice.block_tables,
                            .sample_slots = {choice.slot}});
  }
  return input;
}

StepOutput LocalGenerator::execute(StepInput input, int64_t* compute_us) {
  StepOutput output = model_.engine->execute(input);
  *compute_us += output.compute_us;
  return output;
}

void LocalGenerator::close(const std::vector<ChoiceRun>& choices) {
  StepInput input;
  for (const ChoiceRun& choice : choices) input.closed_slots.push_back(choice.slot);
  model_.engine->execute(input);
}

}  // namespace baton
