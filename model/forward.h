// The forward pass of Llama, Mistral, Qwen 2 and Qwen 3: read hidden_states() from top to bottom.
// Written once, against Backend; the buffers are allocated at construction for the largest step.
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "model/batch.h"
#include "model/engine.h"
#include "model/weights.h"

namespace baton {

// Rows that one call of logits() takes at most; the engine asks in runs of it.
constexpr int32_t kLogitRowsMax = 64;

class Forward {
 public:
  // Everything is borrowed and must outlive this. `sink` may be null. Positions go up to
  // `context_len`.
  Forward(const ModelConfig& config, const Weights& weights, const KvLayout& layout,
          std::vector<const PagePool*> pools, Backend& backend, LayerSink* sink,
          int32_t step_tokens_max, int32_t context_len);

  // Runs all layers over the batch: writes its K and V into the pages and leaves the last layer's
  // hidden states for logits(). `step` is what the sink is told of. REQUIRES: batch.num_tokens() <=
  // step_tokens_max.
  void hidden_states(const Batch& batch, const StepInput& step);

  // Logits of the given rows of the last batch: float32 [num_rows, vocab], valid until the next
  // call.
  const float* logits(const int32_t* rows, int32_t num_rows);

 private:
  void attention_block(const Batch& batch, int32_t layer, const StepInput& step);
  void mlp_block(int32_t num_tokens, const LayerWeights& layer);
  void norm(const float* x, const float* weight, float* y, int32_t num_tokens);
  void project(const FusedLinear& weight, const float* x, float* y, int32_t num_tokens);
  void project_and_add(const FusedLinear& weight, const float* x, float* sum, int32_t num_tokens);
  PagedLayer paged_layer(int32_t group, int32_t index) const;

  struct LayerPlace {  // where a layer's K and V are
    int32_t group = 0;
    int32_t index = 0;  // inside the group's pages
  };

  const ModelConfig& config_;
  const Weights& weights_;
  const KvLayout& layout_;
  std::vector<const PagePool*> pools_;  // [kv_groups]
  Backend& backend_;
  LayerSink* const sink_;
  const int32_t step_tokens_max_;
  std::vector<LayerPlace> places_;  // [num_layers]
  std::vector<float> cos_sin_;      // [context_len, rotary_dim]

  // Scratch, float32; T = step_tokens_max.
  std::vector<float> hidden_;        // [T, hidden] the residual stream
  std::vector<float> normed_;        // [T, hidden]
  std::vector<float> qkv_;           // [T, (num_heads + 2 * num_kv_heads) * head_dim]
  std::vector<float> attended_;      // [T, num_heads * head_dim]
  std::vector<float> gate_up_;       // [T, 2 * intermediate]
  std::vector<float> activated_;     // [T, intermediate]
  std::vector<float> logit_hidden_;  // [kLogitRowsMax, hidden]
  std::vector<float> logits_;        // [kLogitRowsMax, vocab]
};

}  // namespace baton
