#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "model/rope.h"

namespace baton {
Forward::Forward(const ModelConfig& config, const Weights& weights, const KvLayout& layout,
                 std::vector<const PagePool*> pools, Backend& backend, LayerSink* sink,
                 int32_t step_tokens_max, int32_t context_len)
    : config_(config),
      weights_(weights),
      layout_(layout),
      pools_(std::move(pools)),
      backend_(backend),
      sink_(sink),
      step_tokens_max_(step_tokens_max),
      places_(static_cast<size_t>(config.num_layers)),
      cos_sin_(rope_table(config.rope, weights.rope_freq_factors, context_len)) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const std::vector<int32_t>& layers = layout.groups[g].layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      places_[static_cast<size_t>(layers[i])] = {static_cast<int32_t>(g), static_cast<int32_t>(i)};
    }
  }
  const auto tokens = static_cast<size_t>(step_tokens_max);
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const auto inner = static_cast<size_t>(config.intermediate_size);
  hidden_.resize(tokens * hidden);
  normed_.resize(tokens * hidden);
  qkv_.resize(tokens * static_cast<size_t>(weights.layers[0].qkv.rows));
  attended_.resize(tokens * static_cast<size_t>(config.num_heads * config.head_dim));
  gate_up_.resize(tokens * 2 * inner);
  activated_.resize(tokens * inner);
  logit_hidden_.resize(size_t{kLogitRowsMax} * hidden);
  logits_.resize(size_t{kLogitRowsMax} * static_cast<size_t>(config.vocab_size));
}

void Forward::hidden_states(const Batch& batch, const StepInput& step) {
  const int32_t num_tokens = batch.num_tokens();
  CHECK_LE(num_tokens, step_tokens_max_) << "tokens in one step";

  backend_.embedding({.table = weights_.embedding,
                      .ids = batch.tokens.data(),
                      .y = hidden_.data(),
                      .num_tokens = num_tokens});
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(batch, layer, step);
    mlp_block(num_tokens, weights_.layers[static_cast<size_t>(layer)]);
  }
}

void Forward::attention_block(const Batch& batch, int32_t layer, const StepInput& step) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const LayerPlace place = places_[static_cast<size_t>(layer)];
  const GroupBatch& group = batch.groups[static_cast<size_t>(place.group)];
  const PagedLayer kv = paged_layer(place.group, place.index);
  const int32_t num_tokens = batch.num_tokens();

  norm(hidden_.data(), weights.attention_norm, normed_.data(), num_tokens);
  project(weights.qkv, normed_.data(), qkv_.data(), num_tokens);
  backend_.rope_kv({.qkv = qkv_.data(),
                    .positions = batch.positions.data(),
                    .slot_mapping = group.slot_mapping.data(),
                    .cos_sin = cos_sin_.data(),
                    .q_norm = weights.q_norm,
                    .k_norm = weights.k_norm,
                    .norm_eps = config_.rms_eps,
                    .kv = kv,
                    .num_tokens = num_tokens,
                    .num_heads = config_.num_heads,
                    .rotary_dim = config_.rope.rotary_dim,
                    .interleaved = config_.rope.interleaved});
  if (sink_ != nullptr) sink_->layer_written(step, layer);
  backend_.attention({.q = qkv_.data(),
                      .y = attended_.data(),
                      .q_stride = weights.qkv.rows,
                      .sequences = group.sequences.data(),
                      .num_sequences = static_cast<int32_t>(group.sequences.size()),
                      .kv = kv,
                      .num_heads = config_.num_heads,
                      .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                      .window = layout_.groups[static_cast<size_t>(place.group)].window});
  project_and_add(weights.output, attended_.data(), hidden_.data(), num_tokens);
}

void Forward::mlp_block(int32_t num_tokens, const LayerWeights& weights) {
  norm(hidden_.data(), weights.mlp_norm, normed_.data(), num_tokens);
  project(weights.gate_up, normed_.data(), gate_up_.data(), num_tokens);
  backend_.activation({.gate_up = gate_up_.data(),
                       .y = activated_.data(),
                       .rows = num_tokens,
                       .cols = config_.intermediate_size,
                       .kind = Activation::kSilu});
  project_and_add(weights.down, activated_.data(), hidden_.data(), num_tokens);
}

const float* Forward::logits(const int32_t* rows, int32_t num_rows) {
  CHECK_LE(num_rows, kLogitRowsMax) << "rows of logits in one call";
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  for (int32_t i = 0; i < num_rows; ++i) {
    std::memcpy(logit_hidden_.data() + static_cast<size_t>(i) * hidden,
                hidden_.data() + static_cast<size_t>(rows[i]) * hidden, hidden * sizeof(float));
  }
  norm(logit_hidden_.data(), weights_.final_norm, logit_hidden_.data(), num_rows);
  backend_.linear({.weight = weights_.lm_head.get(),
                   .x = logit_hidden_.data(),
                   .y = logits_.data(),
                   .num_tokens = num_rows});
  return logits_.data();
}

void Forward::norm(const float* x, const float* weight, float* y, int32_t num_tokens) {
  backend_.rms_norm({.x = x,
                     .weight = weight,
                     .y = y,
                     .rows = num_tokens,
                     .cols = config_.hidden_size,
                     .x_stride = config_.hidden_size,
                     .y_stride = config_.hidden_size,
                     .eps = config_.rms_eps});
}

void Forward::project(const FusedLinear& weight, const float* x, float* y, int32_t num_tokens) {
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

void Forward::project_and_add(const FusedLinear& weight, const float* x, float* sum,
                              int32_t num_tokens) {
  CHECK_EQ(weight.parts.size(), 1U) << "only matrices that share their input have parts";
  backend_.linear({.weight = weight.parts[0].get(),
                   .x = x,
                   .bias = weight.bias,
                   .y = sum,
                   .num_tokens = num_tokens,
                   .accumulate = true});
}

PagedLayer Forward::paged_layer(int32_t group_index, int32_t index) const {
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

}  // namespace baton
