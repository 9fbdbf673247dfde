// The pages of Llama 3.1 8B, for benchmarks of handoffs: 8 MiB each, 32 layers of 256 KiB.
#pragma once

#include "model/kv_layout.h"

namespace baton {

inline KvGroup kv_group_8b() {
  KvGroup group{.num_kv_heads = 8, .head_dim = 128, .page_tokens = 64, .dtype = Dtype::kBF16};
  for (int32_t layer = 0; layer < 32; ++layer) group.layers.push_back(layer);
  return group;
}

}  // namespace baton
