// The forward pass of Llama, Mistral, Qwen 2 and Qwen 3: read hidden_states() from top to bottom.
// Written once, against BackendOf<T> (T: float on CPU, Bf16 on CUDA; which values have which type:
// kernels/activation_types.h); the buffers are allocated at construction for the largest step, so
// that a step allocates nothing and a GPU can capture it in a graph. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "model/batch.h"
#include "model/engine.h"
#include "model/weights.h"

namespace baton {

template <typename T>
class Forward {
 public:
  // Everything is borrowed and must outlive this. `sink` may be null. Positions go up to
  // `context_len`; one call of logits() takes up to `logit_rows_max` rows.
  Forward(const ModelConfig& config, const Weights& weights, const KvLayout& layout,
          std::vector<const PagePool*> pools, BackendOf<T>& backend, LayerSink* sink,
          int32_t step_tokens_max, int32_t logit_rows_max, int32_t context_len);

  // Runs all layers over the batch: writes its K and V into the pages and leaves the last layer's
  // hidden states for logits(). `step` is what the sink is told of. REQUIRES: batch.num_tokens <=
  // step_tokens_max.
  void hidden_states(const BatchView& batch, const StepInput& step);

  // Logits of the given rows of the last batch: float32 [num_rows, vocab], valid until the next
  // call. Both lie in the backend's memory.
  const float* logits(const int32_t* rows, int32_t num_rows);

 private:
  using Normed = typename ActivationTypes<T>::Normed;
  using Residual = typename ActivationTypes<T>::Residual;

  void attention_block(const BatchView& batch, int32_t layer, const StepInput& step);
  void mlp_block(int32_t num_tokens, const LayerWeights& layer);
  void norm(const Residual* x, const float* weight, Normed* y, int32_t num_tokens,
            bool short_y = false);
  void project(const FusedLinear& weight, const Normed* x, Normed* y, int32_t num_tokens);
  void project_and_add(const FusedLinear& weight, const T* x, Residual* sum, int32_t num_tokens);
  PagedLayer paged_layer(int32_t group, int32_t index) const;
  template <typename E>
  E* scratch(int64_t elems);

  struct LayerPlace {  // where a layer's K and V are
    int32_t group = 0;
    int32_t index = 0;  // inside the group's pages
  };

  const ModelConfig& config_;
  const Weights& weights_;
  const KvLayout& layout_;
  std::vector<const PagePool*> pools_;  // [kv_groups]
  BackendOf<T>& backend_;
  LayerSink* const sink_;
  const int32_t step_tokens_max_;
  const int32_t logit_rows_max_;
  std::vector<LayerPlace> places_;                      // [num_layers]
  std::vector<std::unique_ptr<BackendMemory>> memory_;  // of everything below
  const float* cos_sin_ = nullptr;                      // [context_len, rotary_dim]

  // Scratch; S = step_tokens_max, L = logit_rows_max.
  Residual* hidden_ = nullptr;        // [S, hidden]
  Normed* normed_ = nullptr;          // [S, hidden]
  Normed* qkv_ = nullptr;             // [S, (num_heads + 2 * num_kv_heads) * head_dim]
  T* q_ = nullptr;                    // [S, num_heads * head_dim], rows q_stride_ apart
  int64_t q_stride_ = 0;              // on CPU q stays inside qkv
  T* attended_ = nullptr;             // [S, num_heads * head_dim]
  Normed* gate_up_ = nullptr;         // [S, 2 * intermediate]
  T* activated_ = nullptr;            // [S, intermediate]
  Residual* logit_hidden_ = nullptr;  // [L, hidden]
  Normed* logit_normed_ = nullptr;    // [L, hidden]
  float* logits_ = nullptr;           // [L, vocab]
};

}  // namespace baton
