// What a model is: sizes, attention kinds, RoPE, special ids, generation defaults. Read from a
// Hugging Face folder's config.json and generation_config.json, or from GGUF metadata, without
// touching weights. Plain values; the router reads it too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/messages.h"
#include "model/gguf.h"

namespace baton {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  double theta = 10000.0;
  int32_t rotary_dim = 0;
  bool interleaved = false;  // Llama weights in GGUF files: q and k rows are permuted for it
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double original_context_len = 0;  // llama3, yarn
  double low_freq_factor = 1.0;     // llama3
  double high_freq_factor = 4.0;    // llama3
  double attention_factor = 1.0;    // yarn: cos and sin are multiplied by it
  double beta_fast = 32.0;          // yarn
  double beta_slow = 1.0;           // yarn
  bool truncate = true;             // yarn: correction range in whole dimensions
};

struct ModelConfig {
  std::string name;          // folder or file name, for people
  std::string architecture;  // "llama", "mistral", "qwen2", "qwen3"
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t context_len = 0;
  float rms_eps = 1e-5F;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each q and k head before RoPE
  bool tied_embeddings = false;
  // [num_layers]: 0 = full attention, else a token at p sees (p - window, p]
  std::vector<int32_t> layer_windows;
  RopeConfig rope;
  TokenId bos_id = -1;
  std::vector<TokenId> eos_ids;  // config and generation_config together, ascending
  SamplingSpec defaults;         // generation_config.json's temperature, top_p, top_k, ...
};

// `path`: a Hugging Face folder or a GGUF file. Throws ConfigError, one line, naming what is
// missing or unsupported.
ModelConfig read_model_config(const std::string& path);
ModelConfig read_hf_config(const std::string& folder);
ModelConfig read_gguf_config(const GgufFile& file);

// Ranges and divisibility that every later part relies on. `subject` names the file. Throws
// ConfigError.
void validate(const ModelConfig& config, const std::string& subject);

}  // namespace baton
