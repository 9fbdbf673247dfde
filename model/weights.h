// All weights of a model, named, with their shapes; made once at start-up from either file format,
// then read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/tensor_store.h"

namespace baton {

// Matrices that share their input, as one: their rows follow each other. Neighbours of one dtype
// are one product; files that mix dtypes inside (Q4_K q and k beside Q6_K v) keep several parts.
struct FusedLinear {
  std::vector<std::unique_ptr<LinearWeight>> parts;
  const float* bias = nullptr;  // [rows] of all parts together, or null
  int64_t rows = 0;
};

struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  FusedLinear qkv;                        // [(num_heads + 2 * num_kv_heads) * head_dim, hidden]
  const float* q_norm = nullptr;          // [head_dim] or null
  const float* k_norm = nullptr;          // [head_dim] or null
  FusedLinear output;                     // [hidden, num_heads * head_dim]
  const float* mlp_norm = nullptr;        // [hidden]
  FusedLinear gate_up;                    // [2 * intermediate, hidden]
  FusedLinear down;                       // [hidden, intermediate]
};

struct Weights {
  std::unique_ptr<EmbeddingTable> embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;      // [hidden]
  std::unique_ptr<LinearWeight> lm_head;  // [vocab, hidden]; the embedding where tied
  std::vector<float> rope_freq_factors;   // [rotary_dim / 2] or empty
  bool quantised = false;                 // the layers' matrices are of a block type

  // What the pointers above point into.
  TensorStore store;
  std::vector<std::unique_ptr<BackendMemory>> float_vectors;
};

enum class WeightNames : uint8_t { kHuggingFace, kGguf };

// Throws ConfigError for a missing tensor, a wrong shape or an unsupported type. `progress` may be
// empty.
Weights load_weights(const ModelConfig& config, TensorStore store, WeightNames names,
                     Backend& backend, const std::function<void(double)>& progress);

}  // namespace baton
