// What the attention kernels are launched with, and their launchers: one file a kernel and head
// size, because each takes a while to compile. Called by attention_cuda only.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/bf16.h"

namespace baton {

// The arguments of a kernel: AttentionArgs and AttentionPlan on the device, flat.
struct AttentionParams {
  const Bf16* q;
  Bf16* y;
  int64_t q_stride;
  int64_t y_stride;
  const AttentionSequence* sequences;
  AttentionPlan plan;
  const std::byte* pages;  // this layer's slice of page 0
  int64_t page_bytes;
  int32_t page_tokens;
  int32_t num_kv_heads;
  int32_t group;  // query heads a KV head
  int32_t window;
  // Scores in powers of two: score_factor * q.k, or cap_factor * tanh(score_factor * q.k).
  float score_factor;
  float cap_factor;  // 0: no cap
};

template <int kDim>
void launch_decode_attention(const AttentionParams& params, cudaStream_t stream);
template <int kDim>
void launch_prefill_attention(const AttentionParams& params, cudaStream_t stream);

}  // namespace baton
