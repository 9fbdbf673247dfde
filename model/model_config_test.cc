#include "model/model_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "model/gguf_writer.h"

#include "tests/doctest.h"

using namespace baton;
using Json = nlohmann::json;

namespace {

Json base_config() {
  return {{"model_type", "llama"},    {"vocab_size", 100},
          {"hidden_size", 64},        {"intermediate_size", 128},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-6},     {"eos_token_id", 2},
          {"bos_token_id", 1}};
}

ModelConfig read(const Json& config, const Json& generation = Json::object()) {
  const std::string path = write_test_file("config/config.json", config.dump());
  write_test_file("config/generation_config.json", generation.dump());
  return read_hf_config(std::filesystem::path(path).parent_path().string());
}

std::string refusal(const Json& config) {
  try {
    read(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Json with(Json config, const Json& changes) {
  config.update(changes);
  return config;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
}

}  // namespace

TEST_CASE("sizes, ids and generation defaults are read; head_dim may be absent") {
  const ModelConfig model =
      read(base_config(),
           {{"eos_token_id", {2, 5}}, {"temperature", 0.6}, {"top_p", 0.95}, {"top_k", 20}});
  CHECK(model.name == "config");
  CHECK(model.head_dim == 16);
  CHECK(model.rope.rotary_dim == 16);
  CHECK(model.rope.theta == 10000.0);
  CHECK(!model.rope.interleaved);
  CHECK(model.eos_ids == std::vector<TokenId>{2, 5});
  CHECK(model.bos_id == 1);
  CHECK(model.defaults.temperature == 0.6F);
  CHECK(model.defaults.top_k == 20);
  CHECK(model.layer_windows == std::vector<int32_t>{0, 0, 0, 0});
  CHECK(read(with(base_config(), {{"head_dim", 32}})).head_dim == 32);
  CHECK(read(with(base_config(), {{"head_dim", nullptr}})).head_dim == 16);
}

TEST_CASE("both spellings of RoPE scaling are read") {
  const Json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const ModelConfig old = read(with(base_config(), {{"rope_theta", 5e5}, {"rope_scaling", yarn}}));
  CHECK(old.rope.theta == 5e5);
  CHECK(old.rope.scaling == RopeScaling::kYarn);
  CHECK(old.rope.attention_factor == doctest::Approx(1.1386294));
  Json inside = yarn;
  inside["rope_theta"] = 1e6;
  const ModelConfig modern = read(with(base_config(), {{"rope_parameters", inside}}));
  CHECK(modern.rope.theta == 1e6);
  CHECK(modern.rope.original_context_len == 64);
  const ModelConfig linear =
      read(with(base_config(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}));
  CHECK(linear.rope.scaling == RopeScaling::kLinear);
  CHECK(linear.rope.factor == 2.0);
  CHECK(contains(
      refusal(with(base_config(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}})),
      "RoPE type 'dynamic' is not supported"));
}

TEST_CASE("sliding windows follow each family's rules") {
  const auto windows = [](const Json& changes) {
    return read(with(base_config(), changes)).layer_windows;
  };
  using List = std::vector<int32_t>;
  CHECK(windows({{"sliding_window", 32}}) == List{0, 0, 0, 0});  // llama never slides
  CHECK(windows({{"model_type", "mistral"}, {"sliding_window", 32}}) == List{32, 32, 32, 32});
  CHECK(windows({{"model_type", "mistral"}, {"sliding_window", nullptr}}) == List{0, 0, 0, 0});
  CHECK(windows({{"model_type", "qwen2"}, {"sliding_window", 32}}) == List{0, 0, 0, 0});
  CHECK(windows({{"model_type", "qwen2"},
                 {"sliding_window", 32},
                 {"use_sliding_window", true},
                 {"max_window_layers", 3}}) == List{0, 0, 0, 32});
  CHECK(windows({{"model_type", "qwen3"},
                 {"head_dim", 16},
                 {"sliding_window", 32},
                 {"use_sliding_window", true},
                 {"layer_types",
                  {"full_attention", "sliding_attention", "full_attention",
                   "sliding_attention"}}}) == List{0, 32, 0, 32});
}

TEST_CASE("each family's biases and norms") {
  const ModelConfig qwen2 = read(with(base_config(), {{"model_type", "qwen2"}}));
  CHECK(qwen2.qkv_bias);
  CHECK(!qwen2.output_bias);
  const ModelConfig qwen3 = read(with(base_config(), {{"model_type", "qwen3"}}));
  CHECK(qwen3.qk_norm);
  CHECK(qwen3.head_dim == 128);
  const ModelConfig llama =
      read(with(base_config(), {{"attention_bias", true}, {"mlp_bias", true}}));
  CHECK(llama.qkv_bias);
  CHECK(llama.output_bias);
  CHECK(llama.mlp_bias);
}

TEST_CASE("what is missing, wrong or unsupported is named in one line") {
  CHECK(contains(refusal(with(base_config(), {{"model_type", "mamba"}})), "model type 'mamba'"));
  CHECK(contains(refusal(with(base_config(), {{"hidden_act", "gelu"}})), "hidden_act 'gelu'"));
  CHECK(contains(refusal(with(base_config(), {{"vocab_size", nullptr}})), "no 'vocab_size'"));
  CHECK(
      contains(refusal(with(base_config(), {{"vocab_size", "many"}})), "vocab_size: got \"many\""));
  CHECK(contains(refusal(with(base_config(), {{"vocab_size", 1e10}})), "want a 32-bit integer"));
  CHECK(contains(refusal(with(base_config(), {{"num_attention_heads", 0}})),
                 "attention heads: got 0"));
  CHECK(contains(refusal(with(base_config(), {{"num_key_value_heads", 3}})), "no multiple of 3"));
  CHECK(contains(refusal(with(base_config(), {{"head_dim", 514}})),
                 "head dimension: got 514, want 2 to 512"));
  CHECK(contains(refusal(with(base_config(), {{"max_position_embeddings", 0}})),
                 "context length: got 0"));
  CHECK(contains(refusal(with(base_config(), {{"num_hidden_layers", -3}})), "layers: got -3"));
  CHECK(contains(refusal(with(base_config(), {{"eos_token_id", 100}})), "EOS id: got 100"));
  CHECK(contains(refusal(with(base_config(), {{"quantization_config", Json::object()}})),
                 "quantization_config"));
  CHECK(contains(refusal(Json::array()), "not a JSON object"));
  CHECK_THROWS_AS(read_model_config("/nonexistent/model"), ConfigError);
}
