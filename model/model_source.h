// Where a model comes from: its config and its tensors as they lie in files, or made up. What both
// halves of load_model share.
#pragma once

#include <string>

#include "model/engine.h"
#include "model/model_config.h"
#include "model/tensor_store.h"
#include "model/weights.h"

namespace baton {

struct ModelSource {
  ModelConfig config;
  TensorStore store;
  WeightNames names = WeightNames::kHuggingFace;
};

// A Hugging Face folder or a GGUF file. Throws ConfigError.
ModelSource open_model(const std::string& path);
// The shapes of a folder's config.json without weights: tensors of bf16 whose data is null, for
// which the backend makes random values.
ModelSource open_dummy_model(const std::string& path);

// `device`: "cpu", "cuda"; `isa`: Backend::isa().
ModelFacts make_facts(const ModelConfig& config, const TensorStore& store, const KvLayout& layout,
                      int32_t context_len, const std::string& device, const char* isa);
int64_t weight_bytes(const TensorStore& store);
int32_t context_len_of(const ModelConfig& config, const EngineOptions& options);

// load_model for options.device "cpu".
LoadedModel load_cpu_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                           const std::function<void(double)>& progress);
// load_model for options.device "cuda" or "cuda:N". In a build without CUDA: a ConfigError.
LoadedModel load_cuda_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                            const std::function<void(double)>& progress);

}  // namespace baton
