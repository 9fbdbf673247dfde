#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "kernels/bf16.h"
#include "model/rope.h"

namespace baton {

template <typename T>
Forward<T>::Forward(const ModelConfig& config, const Weights& weights, const KvLayout& layout,
                    std::vector<const PagePool*> pools, BackendOf<T>& backend, LayerSink* sink,
                    int32_t step_tokens_max, int32_t logit_rows_max, int32_t context_len)
    : config_(config),
      weights_(weights),
      layout_(layout),
      pools_(std::move(pools)),
      backend_(backend),
      sink_(sink),
      step_tokens_max_(step_tokens_max),
      logit_rows_max_(logit_rows_max),
      places_(static_cast<size_t>(config.num_layers)) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const std::vector<int32_t>& layers = layout.groups[g].layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      places_[static_cast<size_t>(layers[i])] = {static_cast<int32_t>(g), static_cast<int32_t>(i)};
    }
  }
  const std::vector<float> table = rope_table(config.rope, weights.rope_freq_factors, context_len);
  memory_.push_back(
      backend.upload(table.data(), static_cast<int64_t>(table.size() * sizeof(float))));
  cos_sin_ = memory_.back()->as<float>();

  const int64_t tokens = step_tokens_max;
  const int64_t rows = logit_rows_max;
  const int64_t q_elems = int64_t{config.num_heads} * config.head_dim;
  hidden_ = scratch<Residual>(tokens * config.hidden_size);
  normed_ = scratch<Normed>(tokens * config.hidden_size);
  qkv_ = scratch<Normed>(tokens * weights.layers[0].qkv.rows);
  if constexpr (std::is_same_v<T, Normed>) {
    q_ = qkv_;
    q_stride_ = weights.layers[0].qkv.rows;
  } else {
    q_ = scratch<T>(tokens * q_elems);
    q_stride_ = q_elems;
  }
  attended_ = scratch<T>(tokens * q_elems);
  gate_up_ = scratch<Normed>(tokens * 2 * config.intermediate_size);
  activated_ = scratch<T>(tokens * config.intermediate_size);
  logit_hidden_ = scratch<Residual>(rows * config.hidden_size);
  logit_normed_ = scratch<Normed>(rows * config.hidden_size);
  logits_ = scratch<float>(rows * config.vocab_size);
}

template <typename T>
template <typename E>
E* Forward<T>::scratch(int64_t elems) {
  memory_.push_back(backend_.allocate(elems * static_cast<int64_t>(sizeof(E))));
  return memory_.back()->template as<E>();
}

template <typename T>
void Forward<T>::hidden_states(const BatchView& batch, const StepInput& step) {
  CHECK_LE(batch.num_tokens, step_tokens_max_) << "tokens in one step";
  backend_.embedding({.table = weights_.embedding.get(),
                      .ids = batch.tokens,
                      .y = hidden_,
                      .num_tokens = batch.num_tokens});
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(batch, layer, step);
    mlp_block(batch.num_tokens, weights_.layers[static_cast<size_t>(layer)]);
  }
}

template <typename T>
void Forward<T>::attention_block(const BatchView& batch, int32_t layer, const StepInput& step) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const LayerPlace place = places_[static_cast<size_t>(layer)];
  const GroupView& group = batch.groups[static_cast<size_t>(place.group)];
  const PagedLayer kv = paged_layer(place.group, place.index);
  const int32_t num_tokens = batch.num_tokens;

  norm(hidden_, weights.attention_norm, normed_, num_tokens);
  project(weights.qkv, normed_, qkv_, num_tokens);
  backend_.rope_kv({.qkv = qkv_,
                    .q = q_,
                    .q_stride = q_stride_,
                    .positions = batch.positions,
                    .slot_mapping = group.slot_mapping,
                    .cos_sin = cos_sin_,
                    .q_norm = weights.q_norm,
                    .k_norm = weights.k_norm,
                    .norm_eps = config_.rms_eps,
                    .kv = kv,
                    .num_tokens = num_tokens,
                    .num_heads = config_.num_heads,
                    .rotary_dim = config_.rope.rotary_dim,
                    .interleaved = config_.rope.interleaved});
  if (sink_ != nullptr) sink_->layer_written(step, layer);
  backend_.attention({.q = q_,
                      .y = attended_,
                      .q_stride = q_stride_,
                      .batch = group.attention,
                      .kv = kv,
                      .num_heads = config_.num_heads,
                      .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                      .window = layout_.groups[static_cast<size_t>(place.group)].window});
  project_and_add(weights.output, attended_, hidden_, num_tokens);
}

template <typename T>
void Forward<T>::mlp_block(int32_t num_tokens, const LayerWeights& weights) {
  // Here a rounding error does little harm, and the model's largest products follow.
  norm(hidden_, weights.mlp_norm, normed_, num_tokens, true);
  project(weights.gate_up, normed_, gate_up_, num_tokens);
  backend_.activation({.gate_up = gate_up_,
                       .y = activated_,
                       .rows = num_tokens,
                       .cols = config_.intermediate_size,
                       .kind = Activation::kSilu});
  project_and_add(weights.down, activated_, hidden_, num_tokens);
}

template <typename T>
const float* Forward<T>::logits(const int32_t* rows, int32_t num_rows) {
  CHECK_LE(num_rows, logit_rows_max_) << "rows of logits in one call";
  backend_.gather_rows({.x = hidden_,
                        .rows = rows,
                        .y = logit_hidden_,
                        .num_rows = num_rows,
                        .cols = config_.hidden_size});
  norm(logit_hidden_, weights_.final_norm, logit_normed_, num_rows);
  backend_.logits(
      {.weight = weights_.lm_head.get(), .x = logit_normed_, .y = logits_, .num_tokens = num_rows});
  return logits_;
}

template <typename T>
void Forward<T>::norm(const Residual* x, const float* weight, Normed* y, int32_t num_tokens,
                      bool short_y) {
  backend_.rms_norm({.x = x,
                     .weight = weight,
                     .y = y,
                     .rows = num_tokens,
                     .cols = config_.hidden_size,
                     .x_stride = config_.hidden_size,
                     .y_stride = config_.hidden_size,
                     .eps = config_.rms_eps,
                     .short_y = short_y});
}

template <typename T>
void Forward<T>::project(const FusedLinear& weight, const Normed* x, Normed* y,
                         int32_t num_tokens) {
  int64_t first_row = 0;
  for (const auto& part : weight.parts) {
    backend_.linear({.weight = part.get(),
                     .x = x,
                     .bias = weight.bias == nullptr ? nullptr : weight.bias + first_row,
                     .y = y + first_row,
                     .y_stride = weight.rows,
                     .num_tokens = num_tokens});
    first_row += part->rows();
  }
}

template <typename T>
void Forward<T>::project_and_add(const FusedLinear& weight, const T* x, Residual* sum,
                                 int32_t num_tokens) {
  CHECK_EQ(weight.parts.size(), 1U) << "only matrices that share their input have parts";
  backend_.add_linear({.weight = weight.parts[0].get(),
                       .x = x,
                       .bias = weight.bias,
                       .y = sum,
                       .num_tokens = num_tokens});
}

template <typename T>
PagedLayer Forward<T>::paged_layer(int32_t group_index, int32_t index) const {
  const KvGroup& group = layout_.groups[static_cast<size_t>(group_index)];
  const PagePool& pool = *pools_[static_cast<size_t>(group_index)];
  return {.base = pool.base(),
          .page_bytes = pool.page_bytes(),
          .layer_offset = index * group.layer_bytes(),
          .page_tokens = group.page_tokens,
          .num_kv_heads = group.num_kv_heads,
          .head_dim = group.head_dim,
          .dtype = group.dtype};
}

template class Forward<float>;
template class Forward<Bf16>;

}  // namespace baton
