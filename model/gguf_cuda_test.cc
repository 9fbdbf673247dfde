// GGUF files on a GPU: blocks expanded there compute what their values do.
#include "kernels/cuda/testing.h"
#include "model/golden_model.h"
#include "model/tiny_gguf.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

std::vector<TokenId> some_ids() {
  std::vector<TokenId> ids;
  for (int32_t i = 0; i < 40; ++i) ids.push_back((i * 37 + 11) % 100);
  return ids;
}

std::vector<float> logits_on_gpu(const std::string& name, const TinyGgufModel& model,
                                 const std::vector<TokenId>& ids) {
  EngineOptions options = golden_options(16);
  options.device = "cuda";
  options.cuda_graphs = "off";
  LoadedModel loaded = load_model(write_tiny_gguf(name, model), options, nullptr);
  return prefill(loaded, ids, 100);
}

}  // namespace

TEST_CASE("CUDA: a golden model rewritten as GGUF gives the reference's logits within bfloat16") {
  if (no_gpu()) return;
  const GoldenReference reference = read_golden_reference("llama");
  const std::vector<float> got =
      logits_on_gpu("golden.gguf", golden_as_gguf(), reference.input_ids);
  CHECK(relative_l2(got, reference.logits) < 2e-2);  // as golden_cuda_test.cc
}

TEST_CASE("CUDA: quantised weights give what their dequantised values give, bit for bit") {
  if (no_gpu()) return;
  for (const Dtype dtype : {Dtype::kQ4_0, Dtype::kQ4_1, Dtype::kQ5_0, Dtype::kQ5_1, Dtype::kQ8_0,
                            Dtype::kQ4_K, Dtype::kQ5_K, Dtype::kQ6_K}) {
    CAPTURE(dtype_info(dtype).name);
    const TinyGgufModel model = random_tiny_gguf([&](const std::string&) { return dtype; }, 1234);
    CHECK(logits_on_gpu("quantised.gguf", model, some_ids()) ==
          logits_on_gpu("floats.gguf", dequantised(model), some_ids()));
  }
}

TEST_CASE("CUDA: matrices of different types share one input") {
  if (no_gpu()) return;
  const auto mixed = [](const std::string& name) {
    return name == "attn_v" || name == "ffn_up" ? Dtype::kQ6_K
           : name == "attn_k"                   ? Dtype::kF32
                                                : Dtype::kQ4_K;
  };
  const TinyGgufModel model = random_tiny_gguf(mixed, 99);
  // Products of other shapes may add in another order.
  CHECK(relative_l2(logits_on_gpu("mixed.gguf", model, some_ids()),
                    logits_on_gpu("floats.gguf", dequantised(model), some_ids())) < 2e-2);
}
