// Optional q/k RMS norm per head, rotary embedding of q and k, and the write of k and v into their
// pages: one op, because on a GPU it is one kernel and the KV write is where the handoff of a layer
// begins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace baton {

// One layer of one kv_group as it lies in the pages: page p starts at base + p * page_bytes; inside
// it this layer's slice starts at layer_offset and is [K|V][kv_head][token][head_dim] of `dtype`
// (kF32, kF16 or kBF16).
struct PagedLayer {
  std::byte* base = nullptr;
  int64_t page_bytes = 0;
  int64_t layer_offset = 0;
  int32_t page_tokens = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  Dtype dtype = Dtype::kF32;
};

//   qkv           In [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]: q heads, k heads,
//                 v heads; may be computed in, what it holds afterwards is undefined
//   q             T [num_tokens, num_heads * head_dim], row t at q + t * q_stride: normed and
//                 rotated; of qkv's type it may be qkv
//   positions     int32 [num_tokens], absolute
//   slot_mapping  int32 [num_tokens]: page_id * page_tokens + offset, where k and v of the token
//                 go; on CUDA -1 for rows that only fill up a graph's batch: nothing is written
//   cos_sin       float32 [max_positions, rotary_dim]: cos for rotary_dim / 2 frequencies, then
//                 sin; scaling already inside
//   q_norm, k_norm  float32 [head_dim] or null (Qwen 3)
// Rotation is "half" style (element i with i + rotary_dim/2) or interleaved (2i with 2i + 1: Llama
// weights in GGUF files).
template <typename T, typename In = T>
struct RopeKvArgs {
  In* qkv = nullptr;
  T* q = nullptr;
  int64_t q_stride = 0;
  const int32_t* positions = nullptr;
  const int32_t* slot_mapping = nullptr;
  const float* cos_sin = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_eps = 0;
  PagedLayer kv;
  int32_t num_tokens = 0;
  int32_t num_heads = 0;
  int32_t rotary_dim = 0;
  bool interleaved = false;
};

}  // namespace baton
