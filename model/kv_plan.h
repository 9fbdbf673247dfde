// From a model to its KV cache: which layers share a kv_group, and how many pages each group gets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/kv_layout.h"
#include "model/model_config.h"

namespace baton {

// One group for each kind of attention: full, then one a window size, in the order of their first
// layers. REQUIRES: `dtype` is kF32, kF16 or kBF16.
KvLayout plan_kv_layout(const ModelConfig& config, int32_t page_tokens, Dtype dtype);

// Pages per group out of `kv_bytes`, such that every group holds equally many tokens: then no group
// runs out before another and one number describes the pool. A sliding window could do with fewer;
// that memory is the price of the simple rule. Throws ConfigError when not even one page a group
// fits.
std::vector<int32_t> plan_pages(const KvLayout& layout, int64_t kv_bytes);

// Bytes for `tokens` tokens in every group.
int64_t kv_bytes_for(const KvLayout& layout, int64_t tokens);

// "f32", "f16", "bf16", or "auto": f16 beside quantised weights, else f32. Throws ConfigError.
Dtype parse_kv_dtype(const std::string& name, bool quantised_weights);

}  // namespace baton
