#include "model/model_source.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "model/compat_id.h"
#include "model/safetensors.h"

namespace baton {
namespace {

void add_dummy(TensorStore& store, const std::string& name, std::vector<int64_t> shape) {
  int64_t elems = 1;
  for (const int64_t size : shape) elems *= size;
  store.tensors[name] = {.dtype_name = "BF16",
                         .dtype = Dtype::kBF16,
                         .shape = std::move(shape),
                         .bytes = dtype_bytes(Dtype::kBF16, elems)};
}

void add_dummy_layer(TensorStore& store, const ModelConfig& config, const std::string& prefix) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols, bool bias) {
    add_dummy(store, prefix + name + ".weight", {rows, cols});
    if (bias) add_dummy(store, prefix + name + ".bias", {rows});
  };
  matrix("self_attn.q_proj", q, hidden, config.qkv_bias);
  matrix("self_attn.k_proj", kv, hidden, config.qkv_bias);
  matrix("self_attn.v_proj", kv, hidden, config.qkv_bias);
  matrix("self_attn.o_proj", hidden, q, config.output_bias);
  matrix("mlp.gate_proj", inner, hidden, config.mlp_bias);
  matrix("mlp.up_proj", inner, hidden, config.mlp_bias);
  matrix("mlp.down_proj", hidden, inner, config.mlp_bias);
  add_dummy(store, prefix + "input_layernorm.weight", {hidden});
  add_dummy(store, prefix + "post_attention_layernorm.weight", {hidden});
  if (config.qk_norm) {
    add_dummy(store, prefix + "self_attn.q_norm.weight", {config.head_dim});
    add_dummy(store, prefix + "self_attn.k_norm.weight", {config.head_dim});
  }
}

}  // namespace

ModelSource open_model(const std::string& path) {
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

ModelSource open_dummy_model(const std::string& path) {
  ModelSource source{.config = read_hf_config(path)};
  const ModelConfig& config = source.config;
  source.store.path = path;
  add_dummy(source.store, "model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  add_dummy(source.store, "model.norm.weight", {config.hidden_size});
  if (!config.tied_embeddings)
    add_dummy(source.store, "lm_head.weight", {config.vocab_size, config.hidden_size});
  for (int32_t layer = 0; layer < config.num_layers; ++layer)
    add_dummy_layer(source.store, config, "model.layers." + std::to_string(layer) + ".");
  return source;
}

int64_t weight_bytes(const TensorStore& store) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : store.tensors) bytes += tensor.bytes;
  return bytes;
}

int32_t context_len_of(const ModelConfig& config, const EngineOptions& options) {
  return options.context_len_max > 0 ? std::min(options.context_len_max, config.context_len)
                                     : config.context_len;
}

ModelFacts make_facts(const ModelConfig& config, const TensorStore& store, const KvLayout& layout,
                      int32_t context_len, const std::string& device, const char* isa) {
  return {.name = config.name,
          .architecture = config.architecture,
          .vocab_size = config.vocab_size,
          .context_len = context_len,
          .eos_ids = config.eos_ids,
          .bos_id = config.bos_id,
          .defaults = config.defaults,
          .kv_compat_id = kv_compat_id(config, store, layout),
          .numerics_id = numerics_id(device, isa, layout),
          .weight_bytes = weight_bytes(store)};
}

}  // namespace baton
