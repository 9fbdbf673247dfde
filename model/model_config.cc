#include "model/model_config.h"

#include <cmath>
#include <filesystem>

#include "base/status.h"
#include "model/json_file.h"

namespace baton {
namespace {

void require_range(const std::string& subject, const char* what, int64_t got, int64_t low,
                   int64_t high) {
  if (got < low || got > high) {
    throw ConfigError(subject + ": " + what + ": got " + std::to_string(got) + ", want " +
                      std::to_string(low) + " to " + std::to_string(high));
  }
}

void validate_rope(const RopeConfig& rope, const std::string& subject) {
  const auto require = [&](bool good, const char* what) {
    if (!good) throw ConfigError(subject + ": RoPE: " + what);
  };
  require(std::isfinite(rope.theta) && rope.theta > 1, "theta is not above 1");
  require(rope.rotary_dim >= 2 && rope.rotary_dim % 2 == 0, "rotary dimension is not even");
  require(std::isfinite(rope.factor) && rope.factor > 0, "factor is not positive");
  if (rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn) {
    require(rope.original_context_len > 0, "original_max_position_embeddings is not positive");
    require(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor,
            "want 0 < low_freq_factor < high_freq_factor");
    require(rope.beta_fast > 0 && rope.beta_slow > 0, "beta_fast and beta_slow are not positive");
    require(std::isfinite(rope.attention_factor), "attention factor is not finite");
  }
}

}  // namespace

void validate(const ModelConfig& config, const std::string& subject) {
  require_range(subject, "vocabulary size", config.vocab_size, 1, 1 << 22);
  require_range(subject, "hidden size", config.hidden_size, 1, 1 << 17);
  require_range(subject, "intermediate size", config.intermediate_size, 1, 1 << 19);
  require_range(subject, "layers", config.num_layers, 1, 1024);
  require_range(subject, "attention heads", config.num_heads, 1, 1024);
  require_range(subject, "key/value heads", config.num_kv_heads, 1, config.num_heads);
  require_range(subject, "head dimension", config.head_dim, 2, 512);  // as the kernels take
  require_range(subject, "context length", config.context_len, 1, 1 << 24);
  if (config.num_heads % config.num_kv_heads != 0) {
    throw ConfigError(subject + ": " + std::to_string(config.num_heads) +
                      " attention heads are no multiple of " + std::to_string(config.num_kv_heads) +
                      " key/value heads");
  }
  if (!std::isfinite(config.rms_eps) || config.rms_eps < 0) {
    throw ConfigError(subject + ": RMS norm epsilon is negative or not finite");
  }
  if (config.rope.rotary_dim > config.head_dim) {
    throw ConfigError(subject + ": rotary dimension " + std::to_string(config.rope.rotary_dim) +
                      " exceeds the head dimension " + std::to_string(config.head_dim));
  }
  validate_rope(config.rope, subject);
  for (const TokenId id : config.eos_ids) {
    require_range(subject, "EOS id", id, 0, config.vocab_size - 1);
  }
  require_range(subject, "BOS id", config.bos_id, -1, config.vocab_size - 1);
  for (const int32_t window : config.layer_windows) {
    require_range(subject, "sliding window", window, 0, 1 << 24);
  }
}

ModelConfig read_model_config(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw ConfigError(path + ": no such file or folder; want a Hugging Face folder or a GGUF file");
  }
  if (std::filesystem::is_directory(path, error)) return read_hf_config(path);
  return read_gguf_config(open_gguf(path));
}

}  // namespace baton
