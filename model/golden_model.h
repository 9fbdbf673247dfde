// For tests: the golden models of tests/golden with their reference outputs, and steps to run them
// with, on a CPU or a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/engine.h"

namespace baton {

inline constexpr const char* kGoldenFamilies[] = {
    "llama", "llama3-rope-tied", "llama-yarn", "llama-bias", "qwen2", "qwen3", "mistral-swa"};
inline constexpr int32_t kGoldenLanes = 4;

struct GoldenReference {
  std::vector<TokenId> input_ids;
  std::vector<float> logits;         // [input_ids, vocab]
  std::vector<TokenId> greedy;       // what follows input_ids greedily
  std::vector<float> greedy_margin;  // likeliest minus second likeliest logit
};

std::string golden_path(const std::string& family);
GoldenReference read_golden_reference(const std::string& family);

// Options of a small pool; every page is filled with NaN, so that arithmetic on unwritten memory
// shows.
EngineOptions golden_options(int32_t page_tokens);
LoadedModel load_golden(const std::string& family, const EngineOptions& options,
                        LayerSink* sink = nullptr);

// Block tables for `num_tokens` tokens in all groups, with pages scattered over the pool; sequences
// with different `lane`s in [0, lanes) share no page. Pages that positions from `first_pos` on no
// longer see are -1.
std::vector<std::vector<int32_t>> scattered_tables(const LoadedModel& model, int32_t num_tokens,
                                                   int32_t first_pos, int32_t lane, int32_t lanes);

// A chunk of ids [begin, end) with the logits of all of them.
Chunk make_chunk(const LoadedModel& model, const std::vector<TokenId>& ids, int32_t begin,
                 int32_t end, int32_t lane = 0, int32_t lanes = kGoldenLanes);
// Runs a step of these chunks, which must not fail; its logits.
std::vector<float> execute(LoadedModel& model, std::vector<Chunk> chunks);
// Logits of all ids, fed in chunks of `chunk_tokens`.
std::vector<float> prefill(LoadedModel& model, const std::vector<TokenId>& ids,
                           int32_t chunk_tokens, int32_t lane = 0, int32_t lanes = kGoldenLanes);
// A choice behind the reference's prompt, of 900 tokens at most.
SlotOpen open_slot(int32_t slot, const GoldenReference& reference, SamplingSpec spec);
// Rows [begin, end) of logits.
std::vector<float> rows(const std::vector<float>& logits, int32_t vocab, int32_t begin,
                        int32_t end);

// |a - b| / |b| in the L2 norm.
double relative_l2(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace baton
