// From a path to a model that computes: config, weights, pages, engine.
#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/status.h"
#include "model/compat_id.h"
#include "model/engine.h"
#include "model/engine_cpu.h"
#include "model/kv_plan.h"
#include "model/model_config.h"
#include "model/safetensors.h"
#include "model/weights.h"

namespace baton {
namespace {

struct ModelFiles {
  ModelConfig config;
  TensorStore store;
  WeightNames names = WeightNames::kHuggingFace;
};

ModelFiles open_model(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return {.config = read_hf_config(path), .store = open_safetensors(path)};
  }
  if (!std::filesystem::exists(path, error)) {
    throw ConfigError(path + ": no such file or folder; want a Hugging Face folder or a GGUF file");
  }
  GgufFile file = open_gguf(path);
  ModelConfig config = read_gguf_config(file);
  return {
      .config = std::move(config), .store = std::move(file.tensors), .names = WeightNames::kGguf};
}

int64_t weight_bytes(const TensorStore& store) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : store.tensors) bytes += tensor.bytes;
  return bytes;
}

ModelFacts make_facts(const ModelConfig& config, const TensorStore& store, const KvLayout& layout,
                      int32_t context_len, const char* isa) {
  return {.name = config.name,
          .architecture = config.architecture,
          .vocab_size = config.vocab_size,
          .context_len = context_len,
          .eos_ids = config.eos_ids,
          .bos_id = config.bos_id,
          .defaults = config.defaults,
          .kv_compat_id = kv_compat_id(config, store, layout),
          .numerics_id = numerics_id(isa, layout),
          .weight_bytes = weight_bytes(store)};
}

}  // namespace

LoadedModel load_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                       const std::function<void(double)>& progress) {
  ModelFiles files = open_model(path);
  const int32_t threads =
      options.threads > 0 ? options.threads
                          : std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  std::unique_ptr<BackendOf<float>> backend = make_cpu_backend(threads, options.isa.c_str());
  const int32_t context_len = options.context_len_max > 0
                                  ? std::min(options.context_len_max, files.config.context_len)
                                  : files.config.context_len;
  Weights weights =
      load_weights(files.config, std::move(files.store), files.names, *backend, progress);

  LoadedModel model;
  model.layout = plan_kv_layout(files.config, options.page_tokens,
                                parse_kv_dtype(options.kv_dtype, weights.quantised));
  const int64_t kv_bytes =
      options.kv_bytes > 0 ? options.kv_bytes : kv_bytes_for(model.layout, context_len);
  const std::vector<int32_t> num_pages = plan_pages(model.layout, kv_bytes);
  std::vector<const PagePool*> pools;
  for (size_t g = 0; g < model.layout.groups.size(); ++g) {
    model.pools.push_back(
        std::make_unique<PagePool>(model.layout.groups[g], num_pages[g], options.slab_bytes));
    pools.push_back(model.pools.back().get());
  }
  model.facts = make_facts(files.config, weights.store, model.layout, context_len, backend->isa());
  model.engine = std::make_unique<CpuEngine>(EngineParts{.config = std::move(files.config),
                                                         .layout = model.layout,
                                                         .weights = std::move(weights),
                                                         .backend = std::move(backend),
                                                         .pools = std::move(pools),
                                                         .sink = sink,
                                                         .step_tokens_max = options.step_tokens_max,
                                                         .context_len = context_len});
  return model;
}

}  // namespace baton
