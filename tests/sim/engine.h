// A model that can be checked: K and V of a token in its page are a digest of all tokens up to it,
// so that a page with somebody else's tokens, with old ones or with none is caught by the first
// step that reads it. The next token is drawn from that digest.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/engine.h"
#include "worker/engine_thread.h"

namespace baton::sim {

constexpr int32_t kVocab = 50;
constexpr TokenId kEos = 0;

KvLayout sim_layout(int32_t page_tokens,
                    int32_t window);  // one group of two layers; with window > 0 a second group

// What any worker must generate after `tokens` (prompt and more): the reference.
TokenId next_token(const SamplingSpec& spec, int32_t choice, const std::vector<TokenId>& tokens,
                   int32_t prompt_len, FinishReason* finish);

// Runs the steps of one worker when the simulation says so. Each step takes two: begin() computes,
// writes pages and signals the layers; end() delivers the output. Violations are collected, not
// thrown.
class SimEngine final : public StepRunner {
 public:
  SimEngine(const KvLayout& layout, std::vector<PagePool*> pools, LayerSink& sink,
            std::vector<std::string>& violations)
      : layout_(layout), pools_(std::move(pools)), sink_(sink), violations_(violations) {}

  void submit(StepInput input) override { steps_.push_back(std::move(input)); }
  bool idle() const { return steps_.empty() && outputs_.empty(); }
  bool begin();                  // false: nothing to compute
  bool end(StepOutput* output);  // false: nothing has been computed

 private:
  struct Slot {
    SamplingSpec spec;
    int32_t choice = 0;
    int32_t prompt_len = 0;
    std::vector<TokenId> tokens;
    bool ended = false;
  };

  void run_chunk(const StepInput& step, const Chunk& chunk, StepOutput& output);
  void write(const Chunk& chunk, int32_t position, uint64_t digest);
  void check(const Chunk& chunk, int32_t position, uint64_t digest);
  // part: 0 for K, 1 for V.
  std::byte* record_at(const Chunk& chunk, size_t group, int32_t layer, int32_t part,
                       int32_t position) const;
  void sample(const Chunk& chunk, const std::vector<TokenId>& tokens, int32_t slot,
              StepOutput& output);
  void violation(const std::string& what);

  const KvLayout layout_;
  const std::vector<PagePool*> pools_;
  LayerSink& sink_;
  std::vector<std::string>& violations_;
  std::deque<StepInput> steps_;
  std::deque<StepOutput> outputs_;
  std::map<int32_t, Slot> slots_;
  std::map<uint64_t, std::vector<TokenId>>
      prefixes_;  // digest -> its tokens: to continue a chunk at first_pos > 0
};

}  // namespace baton::sim
