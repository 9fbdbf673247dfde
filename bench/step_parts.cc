#include "bench/step_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/activation/activation_cuda.h"
#include "kernels/attention/attention_timing.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/linear/gemm_timing.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope_kv/rope_kv_cuda.h"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

constexpr int32_t kRepeats = 8, kRounds = 7;

int64_t heads_elems(const ModelConfig& config) {
  return int64_t{config.num_heads} * config.head_dim;
}
int64_t qkv_elems(const ModelConfig& config) {
  return heads_elems(config) + int64_t{2} * config.num_kv_heads * config.head_dim;
}

DeviceBuffer random_elems(int64_t elems, const CudaStream& stream) {
  DeviceBuffer buffer(elems * int64_t{sizeof(Bf16)});
  fill_random_cuda(1, 1, buffer.as<Bf16>(), elems, stream.get());
  return buffer;
}

}  // namespace

StepParts::StepParts(ModelConfig config, const LoadedModel& model, const std::string& gemm_table)
    : config_(std::move(config)),
      model_(model),
      device_(open_cuda_device(model.cuda_device)),
      cublas_(load_gemm_table(gemm_table, device_.name)) {
  prepare_skinny_gemm();
  prepare_stream_gemm();
}

PartsMs StepParts::time(int32_t sequences, int32_t num_tokens, int32_t first_pos) {
  const int32_t tokens = sequences * num_tokens;
  const int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  const double layer_us = linear_us(qkv_elems(config_), hidden, GemmEpilogue::kStore, tokens) +
                          linear_us(hidden, heads_elems(config_), GemmEpilogue::kAdd, tokens) +
                          linear_us(2 * inner, hidden, GemmEpilogue::kStore, tokens) +
                          linear_us(hidden, inner, GemmEpilogue::kAdd, tokens);
  const double head_us = linear_us(config_.vocab_size, hidden, GemmEpilogue::kFloat, sequences);
  return {.linear = (layer_us * config_.num_layers + head_us) / 1e3,
          .attention = attention_us(sequences, num_tokens, first_pos) / 1e3,
          .rest = (layer_rest_us(tokens) * config_.num_layers + sampling_us(sequences)) / 1e3};
}

double StepParts::linear_us(int64_t rows, int64_t cols, GemmEpilogue epilogue, int32_t num_tokens) {
  std::vector<TimedProduct> products;
  for (const SmallChoice& choice :
       {SmallChoice{SmallKernel::kCublas, {}},
        {SmallKernel::kSkinny, {}},
        {SmallKernel::kStream, plan_stream_gemm(rows, cols, device_.num_sms)}})
    products.push_back(product_by(choice, cublas_, device_.num_sms));
  GemmTimer timer({rows, cols, epilogue}, num_tokens);
  const std::vector<double> times = timer.time_us(products, num_tokens, kRounds);
  return *std::min_element(times.begin(), times.end());
}

PagedLayer StepParts::pages() const {
  const KvGroup& group = model_.layout.groups[0];
  return {.base = model_.pools[0]->base(),
          .page_bytes = model_.pools[0]->page_bytes(),
          .page_tokens = group.page_tokens,
          .num_kv_heads = group.num_kv_heads,
          .head_dim = group.head_dim,
          .dtype = group.dtype};
}

// All layers'.
double StepParts::attention_us(int32_t sequences, int32_t num_tokens, int32_t first_pos) {
  const KvGroup& group = model_.layout.groups[0];
  const int64_t elems = sequences * num_tokens * heads_elems(config_);
  const DeviceBuffer q = random_elems(elems, stream_), y = random_elems(elems, stream_);
  const AttentionShape shape{config_.num_heads, group.num_kv_heads, group.head_dim, group.window};
  const TimedAttention attention(shape, pages(), model_.pools[0]->num_pages(), device_.num_sms,
                                 sequences, num_tokens, first_pos, q.as<Bf16>(), y.as<Bf16>());
  return time_repeats(stream_, 1, kRounds, [&](cudaStream_t stream) {
    for (int32_t layer = 0; layer < config_.num_layers; ++layer)
      attention.enqueue(layer % static_cast<int32_t>(group.layers.size()) * group.layer_bytes(),
                        stream);
  });
}

double StepParts::layer_rest_us(int32_t num_tokens) {
  const int64_t hidden = config_.hidden_size, inner = config_.intermediate_size;
  std::vector<int32_t> indices(static_cast<size_t>(num_tokens));
  const int64_t slots = int64_t{model_.pools[0]->num_pages()} * pages().page_tokens;
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i % slots);
  const DeviceBuffer places = on_gpu(indices);
  const DeviceBuffer floats = on_gpu(std::vector<float>(
      static_cast<size_t>(std::max<int64_t>(hidden, int64_t{num_tokens} * config_.rope.rotary_dim)),
      1.0F));
  const DeviceBuffer x = random_elems(int64_t{2} * num_tokens * hidden, stream_),
                     y = random_elems(num_tokens * hidden, stream_),
                     q = random_elems(num_tokens * heads_elems(config_), stream_),
                     qkv = random_elems(num_tokens * qkv_elems(config_), stream_),
                     gate_up = random_elems(num_tokens * 2 * inner, stream_),
                     activated = random_elems(num_tokens * inner, stream_);
  const auto norm = [&](cudaStream_t stream) {
    rms_norm_cuda({x.as<float>(), floats.as<float>(), y.as<F16>(), num_tokens, config_.hidden_size,
                   config_.hidden_size, config_.hidden_size, config_.rms_eps},
                  stream);
  };
  return time_repeats(stream_, kRepeats, kRounds, [&](cudaStream_t stream) {
    norm(stream);
    rope_kv_cuda({.qkv = qkv.as<F16>(),
                  .q = q.as<Bf16>(),
                  .q_stride = heads_elems(config_),
                  .positions = places.as<int32_t>(),
                  .slot_mapping = places.as<int32_t>(),
                  .cos_sin = floats.as<float>(),
                  .kv = pages(),
                  .num_tokens = num_tokens,
                  .num_heads = config_.num_heads,
                  .rotary_dim = config_.rope.rotary_dim,
                  .interleaved = config_.rope.interleaved},
                 stream);
    norm(stream);
    activation_cuda({gate_up.as<F16>(), activated.as<Bf16>(), num_tokens, config_.intermediate_size,
                     Activation::kSilu},
                    stream);
  });
}

// Greedy, as the steps are.
double StepParts::sampling_us(int32_t num_samples) {
  const DeviceBuffer logits = random_elems(int64_t{2} * num_samples * config_.vocab_size, stream_);
  std::vector<SampleParams> params(static_cast<size_t>(num_samples));
  for (int32_t i = 0; i < num_samples; ++i) params[static_cast<size_t>(i)].row = i;
  const DeviceBuffer params_there = on_gpu(params);
  const DeviceBuffer scratch(sample_scratch_bytes(num_samples));
  const DeviceBuffer results(num_samples * int64_t{sizeof(SampleResult)});
  return time_repeats(stream_, kRepeats, kRounds, [&](cudaStream_t stream) {
    sample_cuda({.logits = logits.as<float>(),
                 .vocab_size = config_.vocab_size,
                 .params = params_there.as<SampleParams>(),
                 .num_samples = num_samples,
                 .scratch = scratch.data(),
                 .results = results.as<SampleResult>()},
                stream);
  });
}

}  // namespace baton
