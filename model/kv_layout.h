// The shape of the KV cache: kv_groups, their pages, and where a layer lies in a page. Everybody
// who touches pages agrees on this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"

namespace baton {

// Layers that share one kind of attention, hence one block table. A page holds page_tokens tokens
// for all layers of the group, contiguous: [layer][K|V][kv_head][token][head_dim].
struct KvGroup {
  std::vector<int32_t> layers;  // of the model, ascending; their index here = in the page
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t page_tokens = 16;
  int32_t window = 0;  // 0 = full attention; else a token at p sees (p - window, p]
  Dtype dtype = Dtype::kF32;

  int64_t layer_bytes() const {
    return 2 * dtype_bytes(dtype, int64_t{num_kv_heads} * page_tokens * head_dim);
  }
  int64_t page_bytes() const { return layer_bytes() * static_cast<int64_t>(layers.size()); }
  int32_t pages_for(int32_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
  // The first position, rounded down to a page, that the token after `tokens` tokens still sees.
  int32_t first_needed(int32_t tokens) const {
    if (window == 0 || tokens < window) return 0;
    return (tokens - window + 1) / page_tokens * page_tokens;
  }
};

// Where the pages start that a decode worker needs for a prompt of which it has [0, cached_tokens)
// already.
inline int32_t landing_start(const KvGroup& group, int32_t prompt_tokens, int32_t cached_tokens) {
  return std::max(cached_tokens, group.first_needed(prompt_tokens));
}

struct KvLayout {
  std::vector<KvGroup> groups;
};

}  // namespace baton
