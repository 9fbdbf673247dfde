// Model configuration from GGUF metadata: keys "<architecture>.*" as llama.cpp's converters write
// them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/status.h"
#include "model/model_config.h"

namespace baton {
namespace {

// "<architecture>.<name>" as an int32.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufMetadata& metadata, const std::string& architecture)
      : metadata_(metadata), prefix_(architecture + ".") {}

  int32_t integer(const char* name) const {
    return narrow(name, metadata_.integer(prefix_ + name));
  }
  int32_t integer(const char* name, int32_t fallback) const {
    return narrow(name, metadata_.integer(prefix_ + name, fallback));
  }
  double number(const char* name) const { return metadata_.number(prefix_ + name); }
  double number(const char* name, double fallback) const {
    return metadata_.number(prefix_ + name, fallback);
  }
  std::string string(const char* name, const char* fallback) const {
    return metadata_.string(prefix_ + name, fallback);
  }

 private:
  int32_t narrow(const char* name, int64_t value) const {
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      throw ConfigError(metadata_.file() + ": metadata '" + prefix_ + name + "' is " +
                        std::to_string(value) + ", out of range");
    }
    return static_cast<int32_t>(value);
  }

  const GgufMetadata& metadata_;
  std::string prefix_;
};

RopeConfig read_rope(const GgufFile& file, const ArchitectureKeys& keys, const ModelConfig& model) {
  RopeConfig rope;
  rope.theta = keys.number("rope.freq_base", 10000.0);
  rope.rotary_dim = keys.integer("rope.dimension_count", model.head_dim);
  rope.interleaved = model.architecture == "llama";
  const std::string type = keys.string("rope.scaling.type", "none");
  // Older files say only the linear factor.
  const double old_factor = keys.number("rope.scale_linear", 1.0);
  rope.factor = keys.number("rope.scaling.factor", old_factor);
  rope.original_context_len =
      keys.number("rope.scaling.original_context_length", static_cast<double>(model.context_len));
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1.0);
    const double own_scale = rope.factor <= 1 ? 1.0 : 0.1 * std::log(rope.factor) + 1.0;
    rope.attention_factor = own_scale * keys.number("rope.scaling.attn_factor", 1.0);
  } else if (type == "linear" || (type == "none" && old_factor != 1.0)) {
    rope.scaling = RopeScaling::kLinear;
  } else if (type != "none") {
    throw ConfigError(file.metadata.file() + ": RoPE scaling '" + type +
                      "' is not supported, want none, linear or yarn");
  }
  return rope;
}

void read_special_ids(const GgufFile& file, ModelConfig* model) {
  const auto id_of = [&](const char* key) {
    const int64_t id = file.metadata.integer(key, -1);
    if (id < -1 || id >= model->vocab_size) {
      throw ConfigError(file.metadata.file() + ": " + key + " is " + std::to_string(id) +
                        ", but the vocabulary has " + std::to_string(model->vocab_size) +
                        " tokens");
    }
    return static_cast<TokenId>(id);
  };
  model->bos_id = id_of("tokenizer.ggml.bos_token_id");
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const TokenId id = id_of(key); id >= 0) model->eos_ids.push_back(id);
  }
  std::vector<TokenId>& ids = model->eos_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  model->defaults.eos_ids = ids;
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata;
  ModelConfig model;
  model.name = std::filesystem::path(metadata.file()).stem().string();
  model.architecture = metadata.string("general.architecture");
  if (model.architecture != "llama" && model.architecture != "qwen2" &&
      model.architecture != "qwen3") {
    throw ConfigError(metadata.file() + ": architecture '" + model.architecture +
                      "' is not supported in GGUF files, want llama, qwen2 or qwen3");
  }
  const ArchitectureKeys keys(metadata, model.architecture);
  if (keys.integer("expert_count", 0) > 0) {
    throw ConfigError(metadata.file() + ": mixture of experts is not supported");
  }
  const StoredTensor* embedding = file.tensors.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw ConfigError(metadata.file() + ": no matrix 'token_embd.weight'");
  }
  model.vocab_size = static_cast<int32_t>(std::min<int64_t>(embedding->shape[0], int64_t{1} << 30));
  model.hidden_size = keys.integer("embedding_length");
  model.intermediate_size = keys.integer("feed_forward_length");
  model.num_layers = keys.integer("block_count");
  model.num_heads = keys.integer("attention.head_count");
  model.num_kv_heads = keys.integer("attention.head_count_kv", model.num_heads);
  model.context_len = keys.integer("context_length");
  model.rms_eps = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon"));
  if (model.num_layers < 1 || model.num_layers > 1024 || model.num_heads < 1) {
    validate(model, metadata.file());
  }
  model.head_dim = keys.integer("attention.key_length", model.hidden_size / model.num_heads);
  if (keys.integer("attention.value_length", model.head_dim) != model.head_dim) {
    throw ConfigError(metadata.file() +
                      ": key and value heads of different size are not supported");
  }
  model.tied_embeddings = file.tensors.find("output.weight") == nullptr;
  model.qkv_bias = file.tensors.find("blk.0.attn_q.bias") != nullptr;
  model.output_bias = file.tensors.find("blk.0.attn_output.bias") != nullptr;
  model.mlp_bias = file.tensors.find("blk.0.ffn_down.bias") != nullptr;
  model.qk_norm = model.architecture == "qwen3";
  model.layer_windows.assign(static_cast<size_t>(model.num_layers),
                             keys.integer("attention.sliding_window", 0));
  model.rope = read_rope(file, keys, model);
  read_special_ids(file, &model);
  validate(model, metadata.file());
  return model;
}

}  // namespace baton
