// config.json and generation_config.json, with the defaults and meanings of Hugging Face
// transformers.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/status.h"
#include "model/json_file.h"
#include "model/model_config.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Checked reads of one JSON object; null counts as absent.
class Fields {
 public:
  Fields(const Json& object, std::string subject) : object_(object), subject_(std::move(subject)) {
    if (!object_.is_object()) throw ConfigError(subject_ + ": not a JSON object");
  }

  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool present(const char* key) const { return object_.contains(key); }  // also when null
  int32_t integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) throw ConfigError(subject_ + ": no '" + key + "'");
    return to_integer(*value, key);
  }
  int32_t integer(const char* key, int32_t fallback) const {
    const Json* value = find(key);
    return value == nullptr ? fallback : to_integer(*value, key);
  }
  double number(const char* key, double fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) fail(key, *value, "a number");
    return value->get<double>();
  }
  double number(const char* key) const {
    if (find(key) == nullptr) throw ConfigError(subject_ + ": no '" + key + "'");
    return number(key, 0);
  }
  bool boolean(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) fail(key, *value, "true or false");
    return value->get<bool>();
  }
  std::string string(const char* key, const std::string& fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) fail(key, *value, "a string");
    return value->get<std::string>();
  }
  // One id or a list of them.
  std::vector<TokenId> ids(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return {to_integer(*value, key)};
    std::vector<TokenId> result;
    for (const Json& element : *value) result.push_back(to_integer(element, key));
    return result;
  }
  const std::string& subject() const { return subject_; }

 private:
  [[noreturn]] void fail(const char* key, const Json& got, const char* want) const {
    throw ConfigError(subject_ + ": " + key + ": got " + got.dump().substr(0, 60) + ", want " +
                      want);
  }
  int32_t to_integer(const Json& value, const char* key) const {
    if (!value.is_number_integer() || value.get<double>() > 2147483647.0 ||
        value.get<double>() < -2147483648.0) {
      fail(key, value, "a 32-bit integer");
    }
    return value.get<int32_t>();
  }

  const Json& object_;
  std::string subject_;
};

double default_yarn_attention_factor(const Fields& rope, double factor) {
  const auto mscale = [](double scale, double weight) {
    return scale <= 1 ? 1.0 : 0.1 * weight * std::log(scale) + 1.0;
  };
  const double numerator = rope.number("mscale", 0);
  const double denominator = rope.number("mscale_all_dim", 0);
  if (numerator != 0 && denominator != 0) {
    return mscale(factor, numerator) / mscale(factor, denominator);
  }
  return mscale(factor, 1.0);
}

// Both spellings: transformers 5 `rope_parameters` (theta inside) and the older `rope_scaling`
// beside `rope_theta`.
RopeConfig read_rope(const Fields& config, int32_t head_dim, int32_t context_len) {
  const Json* object = config.find("rope_parameters");
  if (object == nullptr) object = config.find("rope_scaling");
  const Json none = Json::object();
  const Fields rope(object == nullptr ? none : *object, config.subject() + ": rope parameters");

  RopeConfig result;
  result.theta = rope.number("rope_theta", config.number("rope_theta", 10000.0));
  const double partial =
      rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  if (!(partial > 0 && partial <= 1)) {
    throw ConfigError(config.subject() + ": partial_rotary_factor is not in (0, 1]");
  }
  result.rotary_dim = static_cast<int32_t>(head_dim * partial);
  const std::string type = rope.string("rope_type", rope.string("type", "default"));
  if (type == "default") return result;

  result.factor = rope.number("factor");
  result.original_context_len = config.number(
      "original_max_position_embeddings",
      rope.number("original_max_position_embeddings", static_cast<double>(context_len)));
  if (type == "linear") {
    result.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    result.scaling = RopeScaling::kLlama3;
    result.low_freq_factor = rope.number("low_freq_factor");
    result.high_freq_factor = rope.number("high_freq_factor");
  } else if (type == "yarn") {
    result.scaling = RopeScaling::kYarn;
    result.beta_fast = rope.number("beta_fast", 32.0);
    result.beta_slow = rope.number("beta_slow", 1.0);
    result.truncate = rope.boolean("truncate", true);
    result.attention_factor =
        rope.number("attention_factor", default_yarn_attention_factor(rope, result.factor));
  } else {
    throw ConfigError(config.subject() + ": RoPE type '" + type +
                      "' is not supported, want default, linear, llama3 or yarn");
  }
  return result;
}

std::vector<int32_t> windows_from_layer_types(const Fields& config, const Json& types,
                                              int32_t num_layers, int32_t window) {
  if (!types.is_array() || static_cast<int32_t>(types.size()) != num_layers) {
    throw ConfigError(config.subject() + ": layer_types, want one for each of " +
                      std::to_string(num_layers) + " layers");
  }
  std::vector<int32_t> windows;
  for (const Json& type : types) {
    if (type == "full_attention") {
      windows.push_back(0);
    } else if (type == "sliding_attention" && window > 0) {
      windows.push_back(window);
    } else {
      throw ConfigError(config.subject() + ": layer type " + type.dump().substr(0, 60) +
                        (window > 0 ? " is not supported" : " without a sliding_window"));
    }
  }
  return windows;
}

// Mistral: every layer slides, by 4096 unless said otherwise; null means none. Qwen: only with
// use_sliding_window, layers from max_window_layers on, or as layer_types says. Llama: never.
std::vector<int32_t> read_windows(const Fields& config, const ModelConfig& model) {
  std::vector<int32_t> windows(static_cast<size_t>(model.num_layers), 0);
  if (model.architecture == "mistral") {
    const int32_t window =
        config.present("sliding_window") ? config.integer("sliding_window", 0) : 4096;
    std::fill(windows.begin(), windows.end(), window);
  } else if (model.architecture != "llama") {
    const bool enabled = config.boolean("use_sliding_window", false);
    const int32_t window = enabled ? config.integer("sliding_window", 4096) : 0;
    if (const Json* types = config.find("layer_types")) {
      return windows_from_layer_types(config, *types, model.num_layers, window);
    }
    const int32_t first = std::max(0, config.integer("max_window_layers", 28));
    for (int32_t layer = first; layer < model.num_layers; ++layer) windows[layer] = window;
  }
  return windows;
}

void read_features(const Fields& config, ModelConfig* model) {
  const std::string activation = config.string("hidden_act", "silu");
  if (activation != "silu") {
    throw ConfigError(config.subject() + ": hidden_act '" + activation +
                      "' is not supported, want silu");
  }
  if (config.find("quantization_config") != nullptr) {
    throw ConfigError(config.subject() + ": quantization_config is not supported; use a GGUF file");
  }
  const bool attention_bias = config.boolean("attention_bias", false);
  model->qkv_bias = model->architecture == "qwen2" || attention_bias;
  model->output_bias = model->architecture != "qwen2" && attention_bias;
  model->mlp_bias = model->architecture == "llama" && config.boolean("mlp_bias", false);
  model->qk_norm = model->architecture == "qwen3";
  model->tied_embeddings = config.boolean("tie_word_embeddings", false);
}

void read_generation_config(const std::string& folder, ModelConfig* model) {
  const std::string path = folder + "/generation_config.json";
  SamplingSpec& spec = model->defaults;
  if (file_exists(path)) {
    const Json json = parse_json_file(path);
    const Fields config(json, path);
    spec.temperature = static_cast<float>(config.number("temperature", spec.temperature));
    spec.top_p = static_cast<float>(config.number("top_p", spec.top_p));
    spec.top_k = config.integer("top_k", spec.top_k);
    spec.min_p = static_cast<float>(config.number("min_p", spec.min_p));
    spec.repetition_penalty =
        static_cast<float>(config.number("repetition_penalty", spec.repetition_penalty));
    for (const TokenId id : config.ids("eos_token_id")) model->eos_ids.push_back(id);
    if (model->bos_id < 0) model->bos_id = config.integer("bos_token_id", -1);
  }
  std::vector<TokenId>& ids = model->eos_ids;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  spec.eos_ids = ids;
}

std::string read_architecture(const Fields& config) {
  const std::string type = config.string("model_type", "");
  for (const char* known : {"llama", "mistral", "qwen2", "qwen3"}) {
    if (type == known) return type;
  }
  throw ConfigError(config.subject() + ": model type '" + type +
                    "' is not supported, want llama, mistral, qwen2 or qwen3");
}

}  // namespace

ModelConfig read_hf_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Json json = parse_json_file(path);
  const Fields config(json, path);

  ModelConfig model;
  model.name = std::filesystem::path(folder).lexically_normal().filename().string();
  if (model.name.empty()) {
    model.name = std::filesystem::path(folder).lexically_normal().parent_path().filename().string();
  }
  model.architecture = read_architecture(config);
  model.vocab_size = config.integer("vocab_size");
  model.hidden_size = config.integer("hidden_size");
  model.intermediate_size = config.integer("intermediate_size");
  model.num_layers = config.integer("num_hidden_layers");
  model.num_heads = config.integer("num_attention_heads");
  model.num_kv_heads = config.integer("num_key_value_heads", model.num_heads);
  model.context_len = config.integer("max_position_embeddings");
  model.rms_eps = static_cast<float>(config.number("rms_norm_eps", 1e-6));
  if (model.num_layers < 1 || model.num_layers > 1024 || model.num_heads < 1) validate(model, path);
  const int32_t implied = model.architecture == "qwen3" ? 128 : model.hidden_size / model.num_heads;
  model.head_dim = config.integer("head_dim", implied);
  read_features(config, &model);
  model.rope = read_rope(config, model.head_dim, model.context_len);
  model.layer_windows = read_windows(config, model);
  model.bos_id = config.integer("bos_token_id", -1);
  model.eos_ids = config.ids("eos_token_id");
  read_generation_config(folder, &model);
  validate(model, path);
  return model;
}

}  // namespace baton
