// The engine on CPU: slots, page copies, one forward pass over the step's chunks, sampling. Made by
// load_model. All calls from one thread, the engine thread.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "model/batch.h"
#include "model/choice_state.h"
#include "model/engine.h"
#include "model/forward.h"
#include "model/sampler.h"
#include "model/weights.h"

namespace baton {

// What an engine is built from; it becomes the owner of all but the pools and the sink.
struct EngineParts {
  ModelConfig config;
  KvLayout layout;
  Weights weights;
  std::unique_ptr<BackendOf<float>> backend;
  std::vector<const PagePool*> pools;  // [kv_groups], borrowed
  LayerSink* sink = nullptr;           // borrowed, may be null
  int32_t step_tokens_max = 0;
  int32_t context_len = 0;
};

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(EngineParts parts);

  StepOutput execute(const StepInput& input) override;

 private:
  // A row of the batch whose logits somebody wants.
  struct LogitRow {
    int32_t row = 0;     // in the batch
    int32_t offset = 0;  // in its chunk
    const Chunk* chunk = nullptr;
    int32_t num_tokens = 0;  // of the chunk in this batch
  };

  void update_slots(const StepInput& input);
  void copy_pages(const StepInput& input);
  void build_batch(const StepInput& input);
  void add_logit_rows(const Chunk& chunk, int32_t first_row, int32_t num_tokens);
  void collect(StepOutput* output);
  void use_row(const LogitRow& row, const float* logits, StepOutput* output);
  void score_prompt(const LogitRow& row, const float* logits, StepOutput* output);
  void sample(const LogitRow& row, const float* logits, StepOutput* output);
  ChoiceState& slot(int32_t number);

  // In this order: the forward pass points into the weights, the weights were made by the backend.
  EngineParts parts_;
  Forward<float> forward_;
  Sampler sampler_;
  std::unordered_map<int32_t, ChoiceState> slots_;

  // Of the step being executed.
  Batch batch_;
  BatchView view_;
  std::vector<LogitRow> logit_rows_;
};

}  // namespace baton
