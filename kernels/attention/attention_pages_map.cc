#include "kernels/attention/attention_pages_map.h"

#include <cstdint>
#include <limits>

#include "kernels/cuda/tensor_map.h"

namespace baton {

CUtensorMap pages_map(const AttentionParams& params, int32_t head_dim, int32_t box_tokens,
                      CUtensorMapL2promotion promotion) {
  const auto row_bytes = static_cast<uint64_t>(2 * head_dim);
  const auto page_tokens = static_cast<uint64_t>(params.page_tokens);
  const auto num_heads = static_cast<uint64_t>(2 * params.num_kv_heads);
  // Block tables name existing pages only, so the number of pages is as good as any bound.
  const uint64_t sizes[] = {static_cast<uint64_t>(head_dim), page_tokens, num_heads,
                            std::numeric_limits<int32_t>::max()};
  const uint64_t strides_bytes[] = {row_bytes, row_bytes * page_tokens,
                                    static_cast<uint64_t>(params.page_bytes)};
  const uint32_t box[] = {64, static_cast<uint32_t>(box_tokens), 1, 1};
  return make_tensor_map("attention", params.pages, sizes, strides_bytes, box, promotion);
}

}  // namespace baton
