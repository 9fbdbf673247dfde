// load_model for GPUs.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/error.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/sampling/sampling.h"
#include "model/cuda_weights.h"
#include "model/engine_cuda.h"
#include "model/kv_plan.h"
#include "model/model_source.h"
#include "model/plain_slabs.h"
#include "model/vmm_slabs.h"

namespace baton {
namespace {

// Kept free of pages: the CUDA graphs, library workspaces and what the driver takes later.
constexpr int64_t kReserveBytes = int64_t{3} << 29;
// Of the fraction told to `progress`: loading the weights, then capturing the graphs.
constexpr double kWeightsShare = 0.9;

// "cuda" is "cuda:0".
int32_t parse_device(const std::string& device) {
  const std::string prefix = "cuda:";
  if (device == "cuda") return 0;
  const std::string number = device.starts_with(prefix) ? device.substr(prefix.size()) : "";
  if (number.empty() || number.size() > 3 ||
      number.find_first_not_of("0123456789") != std::string::npos) {
    throw ConfigError("device: got \"" + device + "\", want cpu, cuda or cuda:N");
  }
  return std::stoi(number);
}

void check_supported(const ModelConfig& config, const EngineOptions& options) {
  const auto refuse = [&](const char* what, const std::string& got, const std::string& want) {
    throw ConfigError(config.name + " on " + options.device + ": " + what + ": got " + got +
                      ", want " + want);
  };
  const auto at_most = [&](const char* what, int32_t got, int32_t limit) {
    if (got > limit) refuse(what, std::to_string(got), "at most " + std::to_string(limit));
  };
  if (config.head_dim % 8 != 0 || config.head_dim > kAttentionHeadDimMax)
    refuse("head size", std::to_string(config.head_dim),
           "a multiple of 8 up to " + std::to_string(kAttentionHeadDimMax));
  at_most("query heads a KV head", config.num_heads / config.num_kv_heads, kAttentionGroupMax);
  at_most("hidden size", config.hidden_size, kRmsNormColsMax);
  at_most("vocabulary", config.vocab_size, kSampleVocabMax);
  if (options.kv_dtype != "auto" && options.kv_dtype != "bf16")
    refuse("kv.dtype", options.kv_dtype, "auto or bf16");
  if (options.page_tokens % 16 != 0)
    refuse("kv.page_tokens", std::to_string(options.page_tokens), "a multiple of 16");
}

struct GpuMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

GpuMemory gpu_memory() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

std::string mib(int64_t bytes) {
  return std::to_string(bytes >> 20) + " MiB";
}

// Said here, where their sum is known, and not by the matrix that finds no room. Vectors hardly
// count.
void check_weights_fit(const ModelSource& source, const std::string& device) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : source.store.tensors) {
    if (tensor.shape.size() == 2)
      bytes += tensor.shape[0] * tensor.shape[1] * int64_t{sizeof(Bf16)};
  }
  const GpuMemory memory = gpu_memory();
  if (bytes > memory.free_bytes) {
    throw ConfigError(source.config.name + " on " + device + ": its weights take " + mib(bytes) +
                      " in 16 bits, got " + mib(memory.free_bytes) + " of " +
                      mib(memory.total_bytes) + " free");
  }
}

// Of the forward pass, the logits (as they come out and as they are sampled) and the counts of
// tokens, about: what is allocated after the pages.
int64_t scratch_bytes(const ModelConfig& config, const EngineOptions& options,
                      int32_t context_len) {
  const int64_t token_elems =
      int64_t{3} * config.hidden_size +  // the residual is float32
      int64_t{3 * config.num_heads + 2 * config.num_kv_heads} * config.head_dim +
      int64_t{3} * config.intermediate_size;
  const int64_t rows = std::max(options.running_max, 64);
  return options.step_tokens_max * token_elems * int64_t{sizeof(Bf16)} +
         rows * (int64_t{config.vocab_size} * 12 + config.hidden_size * 6) +
         int64_t{context_len} * config.head_dim * 4;
}

int64_t pool_bytes(const ModelConfig& config, const KvLayout& layout, const EngineOptions& options,
                   int32_t context_len) {
  if (options.kv_bytes > 0) return options.kv_bytes;
  if (options.gpu_memory_utilization <= 0) return kv_bytes_for(layout, context_len);
  const GpuMemory memory = gpu_memory();
  const int64_t used = memory.total_bytes - memory.free_bytes;
  const auto allowed = static_cast<int64_t>(options.gpu_memory_utilization *
                                            static_cast<double>(memory.total_bytes));
  const int64_t left = allowed - used - scratch_bytes(config, options, context_len) - kReserveBytes;
  if (left < kv_bytes_for(layout, layout.groups[0].page_tokens)) {
    throw ConfigError("GPU memory: gpu_memory_utilization allows " + mib(allowed) + ", of which " +
                      mib(used) + " are taken and " + mib(allowed - used - left) +
                      " are kept for scratch; nothing is left for the KV cache");
  }
  return left;
}

std::unique_ptr<PagePool> make_pool(const KvGroup& group, int32_t num_pages,
                                    const EngineOptions& options, int32_t device) {
  if (options.plain_pool)
    return std::make_unique<PagePool>(group, num_pages, kOneSlab, plain_slab_memory(device));
  return std::make_unique<PagePool>(group, num_pages, options.slab_bytes, vmm_slab_memory(device));
}

}  // namespace

LoadedModel load_cuda_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                            const std::function<void(double)>& progress) {
  const int32_t index = parse_device(options.device);
  ModelSource source = options.dummy_weights ? open_dummy_model(path) : open_model(path);
  check_supported(source.config, options);
  const int32_t context_len = context_len_of(source.config, options);
  try {
    std::unique_ptr<CudaBackend> backend = make_cuda_backend(
        index, {.deterministic = options.deterministic, .gemm_table = options.gemm_table});
    check_weights_fit(source, options.device);
    Weights weights = load_cuda_weights(source, *backend, [&](double fraction) {
      if (progress) progress(fraction * kWeightsShare);
    });
    LoadedModel model{.cuda_device = index};
    model.layout = plan_kv_layout(source.config, options.page_tokens, Dtype::kBF16);
    const std::vector<int32_t> num_pages =
        plan_pages(model.layout, pool_bytes(source.config, model.layout, options, context_len));
    std::vector<const PagePool*> pools;
    for (size_t g = 0; g < model.layout.groups.size(); ++g) {
      model.pools.push_back(make_pool(model.layout.groups[g], num_pages[g], options, index));
      pools.push_back(model.pools.back().get());
    }
    model.facts =
        make_facts(source.config, weights.store, model.layout, context_len, "cuda", backend->isa());
    model.engine =
        std::make_unique<CudaEngine>(CudaEngineParts{.config = std::move(source.config),
                                                     .layout = model.layout,
                                                     .backend = std::move(backend),
                                                     .weights = std::move(weights),
                                                     .pools = std::move(pools),
                                                     .sink = sink,
                                                     .step_tokens_max = options.step_tokens_max,
                                                     .linger_us = options.linger_us,
                                                     .running_max = options.running_max,
                                                     .context_len = context_len,
                                                     .graphs = options.cuda_graphs},
                                     [&](double fraction) {
                                       if (progress)
                                         progress(kWeightsShare + (1 - kWeightsShare) * fraction);
                                     });
    return model;
  } catch (const CudaError& error) {
    throw ConfigError(options.device + ": " + error.what());
  }
}

}  // namespace baton
