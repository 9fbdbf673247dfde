// Causal attention of new tokens over the pages of their sequences; prefill chunks and decodes in
// one ragged batch.
#pragma once

#include <cstdint>

#include "kernels/rope_kv/rope_kv.h"

namespace baton {

// One sequence's share of the batch: its new tokens are rows [row, row + num_tokens) of q and y, at
// positions first_pos, first_pos + 1, ...; keys and values of all positions up to and including a
// token's own are already in the pages.
struct AttentionSequence {
  int32_t row = 0;
  int32_t num_tokens = 0;
  int32_t first_pos = 0;
  const int32_t* block_table = nullptr;  // [ceil((first_pos + num_tokens) / page_tokens)]; -1 where
                                         // a page has left the window
};

// The sequences of a step, in the memory of the backend. `plan`: how a GPU cuts them into work,
// made once a step for all layers (attention_plan.h); null on CPU.
struct AttentionPlan;
struct AttentionBatch {
  const AttentionSequence* sequences = nullptr;
  int32_t num_sequences = 0;
  const AttentionPlan* plan = nullptr;
};

//   q  T [rows, num_heads * head_dim], row r at q + r * q_stride (on CPU inside the qkv buffer)
//   y  T [rows, num_heads * head_dim]
// window: a token at position p sees positions (p - window, p]; 0 = all. soft_cap: logits = cap *
// tanh(logits / cap); 0 = none. The sum over keys runs in blocks of fixed, absolute position
// (multiples of 64), so a token's result does not depend on chunking, batch, page size or the
// number of threads. Positions beyond a token's own never reach arithmetic (unwritten memory may
// hold NaN).
template <typename T>
struct AttentionArgs {
  const T* q = nullptr;
  T* y = nullptr;
  int64_t q_stride = 0;
  AttentionBatch batch;
  PagedLayer kv;
  int32_t num_heads = 0;
  float scale = 0;
  int32_t window = 0;
  float soft_cap = 0;
};

}  // namespace baton
