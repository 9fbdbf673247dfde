#include "model/weights.h"

#include <string>
#include <utility>

#include "base/status.h"

namespace baton {
namespace {

// What each tensor is called in the two formats; per-layer names follow "model.layers.3." or
// "blk.3.".
struct Names {
  const char* layer_prefix;
  const char* embedding;
  const char* final_norm;
  const char* lm_head;
  const char* attention_norm;
  const char *q, *k, *v, *output;
  const char *q_norm, *k_norm;
  const char* mlp_norm;
  const char *gate, *up, *down;
};
constexpr Names kHuggingFaceNames{
    "model.layers.",    "model.embed_tokens", "model.norm",       "lm_head",
    "input_layernorm",  "self_attn.q_proj",   "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.o_proj", "self_attn.q_norm",   "self_attn.k_norm", "post_attention_layernorm",
    "mlp.gate_proj",    "mlp.up_proj",        "mlp.down_proj"};
constexpr Names kGgufNames{"blk.",        "token_embd", "output_norm", "output",      "attn_norm",
                           "attn_q",      "attn_k",     "attn_v",      "attn_output", "attn_q_norm",
                           "attn_k_norm", "ffn_norm",   "ffn_gate",    "ffn_up",      "ffn_down"};

struct MatrixSpec {
  std::string name;  // without ".weight" and ".bias"
  int64_t rows = 0;
  bool bias = false;
};

class Loader {
 public:
  Loader(const ModelConfig& config, const Names& names, Backend& backend, Weights& weights)
      : config_(config), names_(names), backend_(backend), weights_(weights) {}

  void load_outer() {
    const TensorView table = matrix(names_.embedding, config_.vocab_size, config_.hidden_size);
    weights_.embedding = backend_.prepare_table(table);
    weights_.final_norm = vector(std::string(names_.final_norm) + ".weight", config_.hidden_size);
    weights_.lm_head = backend_.prepare(
        config_.tied_embeddings ? table
                                : matrix(names_.lm_head, config_.vocab_size, config_.hidden_size));
    if (weights_.store.find("rope_freqs.weight") != nullptr) {
      weights_.rope_freq_factors = floats("rope_freqs.weight", config_.rope.rotary_dim / 2);
    }
  }

  LayerWeights load_layer(int32_t layer) {
    const std::string prefix = names_.layer_prefix + std::to_string(layer) + ".";
    const int64_t hidden = config_.hidden_size;
    const int64_t q_rows = int64_t{config_.num_heads} * config_.head_dim;
    const int64_t kv_rows = int64_t{config_.num_kv_heads} * config_.head_dim;
    const int64_t inner = config_.intermediate_size;

    LayerWeights result;
    result.attention_norm = vector(prefix + names_.attention_norm + ".weight", hidden);
    result.qkv = fused(MatrixInput::kNormed,
                       {{prefix + names_.q, q_rows, config_.qkv_bias},
                        {prefix + names_.k, kv_rows, config_.qkv_bias},
                        {prefix + names_.v, kv_rows, config_.qkv_bias}},
                       hidden);
    if (config_.qk_norm) {
      result.q_norm = vector(prefix + names_.q_norm + ".weight", config_.head_dim);
      result.k_norm = vector(prefix + names_.k_norm + ".weight", config_.head_dim);
    }
    result.output = fused(MatrixInput::kActivation,
                          {{prefix + names_.output, hidden, config_.output_bias}}, q_rows);
    result.mlp_norm = vector(prefix + names_.mlp_norm + ".weight", hidden);
    result.gate_up = fused(MatrixInput::kNormed,
                           {{prefix + names_.gate, inner, config_.mlp_bias},
                            {prefix + names_.up, inner, config_.mlp_bias}},
                           hidden);
    result.down =
        fused(MatrixInput::kActivation, {{prefix + names_.down, hidden, config_.mlp_bias}}, inner);
    return result;
  }

 private:
  const StoredTensor& tensor(const std::string& name, const std::vector<int64_t>& shape) const {
    const StoredTensor* found = weights_.store.find(name);
    const std::string& file = weights_.store.path;
    if (found == nullptr) throw ConfigError(file + ": no tensor '" + name + "'");
    if (found->shape != shape) {
      throw ConfigError(file + ": tensor '" + name + "': got shape " + shape_string(found->shape) +
                        ", want " + shape_string(shape));
    }
    if (!found->dtype) {
      throw ConfigError(file + ": tensor '" + name + "': type " + found->dtype_name +
                        " is not supported, want F32, F16 or BF16");
    }
    return *found;
  }

  TensorView matrix(const std::string& name, int64_t rows, int64_t cols) const {
    const std::string full_name = name + ".weight";
    const StoredTensor& found = tensor(full_name, {rows, cols});
    const MappedFile* file = found.file;
    return {.dtype = *found.dtype,
            .rows = rows,
            .cols = cols,
            .data = found.data,
            .name = weights_.store.tensors.find(full_name)->first.c_str(),
            .source = file,
            .source_offset = file == nullptr ? 0 : found.data - file->data()};
  }

  std::vector<float> floats(const std::string& name, int64_t elems) const {
    std::vector<float> values(static_cast<size_t>(elems));
    const StoredTensor& found = tensor(name, {elems});
    if (found.file != nullptr) {
      std::vector<std::byte> stored(static_cast<size_t>(found.bytes));
      found.file->read(name, found.data - found.file->data(), stored);
      dequantize(*found.dtype, stored.data(), values.data(), elems);
    } else if (!name.ends_with(".bias")) {
      values.assign(values.size(), 1.0F);  // a norm of a made-up model
    }
    return values;
  }

  const float* upload(const std::vector<float>& values) {
    weights_.float_vectors.push_back(
        backend_.upload(values.data(), static_cast<int64_t>(values.size() * sizeof(float))));
    return weights_.float_vectors.back()->as<float>();
  }

  const float* vector(const std::string& name, int64_t elems) {
    return upload(floats(name, elems));
  }

  FusedLinear fused(MatrixInput input, const std::vector<MatrixSpec>& specs, int64_t cols) {
    FusedLinear result;
    std::vector<TensorView> run;  // neighbours of one dtype
    bool any_bias = false;
    for (const MatrixSpec& spec : specs) {
      const TensorView view = matrix(spec.name, spec.rows, cols);
      if (!run.empty() && run[0].dtype != view.dtype) {
        result.parts.push_back(backend_.prepare_stacked(run, input));
        run.clear();
      }
      run.push_back(view);
      result.rows += spec.rows;
      any_bias = any_bias || spec.bias;
      weights_.quantised = weights_.quantised || dtype_info(view.dtype).block_elems > 1;
    }
    result.parts.push_back(backend_.prepare_stacked(run, input));
    if (any_bias) result.bias = fused_bias(specs);
    return result;
  }

  const float* fused_bias(const std::vector<MatrixSpec>& specs) {
    std::vector<float> bias;
    for (const MatrixSpec& spec : specs) {
      const std::vector<float> part = floats(spec.name + ".bias", spec.rows);
      bias.insert(bias.end(), part.begin(), part.end());
    }
    return upload(bias);
  }

  const ModelConfig& config_;
  const Names& names_;
  Backend& backend_;
  Weights& weights_;
};

}  // namespace

Weights load_weights(const ModelConfig& config, TensorStore store, WeightNames names,
                     Backend& backend, const std::function<void(double)>& progress) {
  Weights weights;
  weights.store = std::move(store);
  Loader loader(config, names == WeightNames::kGguf ? kGgufNames : kHuggingFaceNames, backend,
                weights);
  loader.load_outer();
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(loader.load_layer(layer));
    if (progress) progress(static_cast<double>(layer + 1) / config.num_layers);
  }
  return weights;
}

}  // namespace baton
