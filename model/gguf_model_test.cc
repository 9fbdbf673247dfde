// Whole models in GGUF form: a golden model rewritten as GGUF gives the reference's logits (names,
// row permutation, interleaved RoPE), and quantised weights give what their dequantised values
// give.
#include <functional>
#include <utility>

#include "base/status.h"
#include "model/golden_model.h"
#include "model/tiny_gguf.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

std::vector<float> run(const std::string& path, const std::vector<TokenId>& ids,
                       int32_t chunk_tokens) {
  EngineOptions options = golden_options(16);
  options.kv_dtype = "f32";
  LoadedModel model = load_model(path, options, nullptr);
  std::vector<float> logits;
  const auto end = static_cast<int32_t>(ids.size());
  for (int32_t at = 0; at < end; at += chunk_tokens) {
    const int32_t stop = std::min(end, at + chunk_tokens);
    const StepOutput output =
        model.engine->execute({.chunks = {{.first_pos = at,
                                           .tokens = {ids.begin() + at, ids.begin() + stop},
                                           .block_tables = scattered_tables(model, end, 0, 0, 1),
                                           .all_logits = true}}});
    logits.insert(logits.end(), output.logits.begin(), output.logits.end());
  }
  return logits;
}

std::vector<TokenId> some_ids() {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back((i * 37 + 11) % 100);
  return ids;
}

}  // namespace

TEST_CASE("a golden model rewritten as GGUF gives the reference's logits") {
  const GoldenReference reference = read_golden_reference("llama");
  const std::string path = write_tiny_gguf("golden.gguf", golden_as_gguf());
  CHECK(relative_l2(run(path, reference.input_ids, 100), reference.logits) <= 1e-3);
}

TEST_CASE("quantised weights give what their dequantised values give, prefill and decode alike") {
  for (const Dtype dtype : {Dtype::kQ4_0, Dtype::kQ4_1, Dtype::kQ5_0, Dtype::kQ5_1, Dtype::kQ8_0,
                            Dtype::kQ4_K, Dtype::kQ5_K, Dtype::kQ6_K}) {
    CAPTURE(dtype_info(dtype).name);
    const TinyGgufModel model = random_tiny_gguf([&](const std::string&) { return dtype; }, 1234);
    const std::string path = write_tiny_gguf("quantised.gguf", model);
    const std::vector<float> whole = run(path, some_ids(), 40);
    const std::vector<float> want =
        run(write_tiny_gguf("floats.gguf", dequantised(model)), some_ids(), 40);
    CHECK(relative_l2(whole, want) < 0.05);  // 8-bit activations
    CHECK(run(path, some_ids(), 1) == whole);
    CHECK(run(path, some_ids(), 7) == whole);
  }
}

TEST_CASE("matrices of different types share one input") {
  const auto mixed = [](const std::string& name) {
    return name == "attn_v" || name == "ffn_up" ? Dtype::kQ6_K
           : name == "attn_k"                   ? Dtype::kF32
                                                : Dtype::kQ4_K;
  };
  const TinyGgufModel model = random_tiny_gguf(mixed, 99);
  const std::vector<float> got = run(write_tiny_gguf("mixed.gguf", model), some_ids(), 16);
  const std::vector<float> want =
      run(write_tiny_gguf("floats.gguf", dequantised(model)), some_ids(), 16);
  CHECK(relative_l2(got, want) < 0.05);
}

TEST_CASE("what is missing or wrong in a GGUF model is named") {
  const auto refusal = [](const TinyGgufModel& model) -> std::string {
    try {
      run(write_tiny_gguf("wrong.gguf", model), {1}, 1);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const TinyGgufModel good = golden_as_gguf();
  TinyGgufModel bad = good;
  bad.tensors.erase("blk.1.ffn_up.weight");
  CHECK(contains(refusal(bad), "no tensor 'blk.1.ffn_up.weight'"));
  bad = good;
  std::swap(bad.tensors["blk.0.ffn_up.weight"], bad.tensors["blk.0.ffn_down.weight"]);
  CHECK(contains(refusal(bad), "got shape [64, 128], want [128, 64]"));
  bad = good;
  bad.tensors.erase("token_embd.weight");
  CHECK(contains(refusal(bad), "no matrix 'token_embd.weight'"));
  bad = good;
  bad.architecture = "gptneox";
  CHECK(contains(refusal(bad), "architecture 'gptneox'"));
  bad = good;
  bad.heads = 0;
  CHECK(contains(refusal(bad), "attention heads: got 0"));
  bad = good;
  bad.context = 0;
  CHECK(contains(refusal(bad), "context length: got 0"));
}

TEST_CASE("weights that hold NaN fail the step with a reason") {
  TinyGgufModel model = golden_as_gguf();
  GgufMatrix& norm = model.tensors["output_norm.weight"];
  norm.bytes.assign(norm.bytes.size(), '\xff');
  EngineOptions options = golden_options(16);
  LoadedModel loaded = load_model(write_tiny_gguf("nan.gguf", model), options, nullptr);
  const StepOutput output = loaded.engine->execute(
      {.opened_slots = {{.spec = {.temperature = 0}, .prompt_len = 1, .tokens = {1}}},
       .chunks = {{.tokens = {1},
                   .block_tables = scattered_tables(loaded, 1, 0, 0, 1),
                   .sample_slots = {0}}}});
  CHECK(output.error.find("not finite") != std::string::npos);
}
