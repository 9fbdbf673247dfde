// The loops of one ISA, declared in its namespace; see isa.h for their contracts.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec.h"

namespace baton::BATON_ISA {

// The vector of one token's head in its page; heads count keys first, then values: [0, 2 *
// num_kv_heads).
BATON_INLINE std::byte* kv_head_address(const PagedLayer& kv, int32_t page, int32_t offset,
                                        int32_t head_of_both) {
  const int64_t elem_bytes = kv.dtype == Dtype::kF32 ? 4 : 2;
  const int64_t row = static_cast<int64_t>(head_of_both) * kv.page_tokens + offset;
  return kv.base + page * kv.page_bytes + kv.layer_offset + row * kv.head_dim * elem_bytes;
}

void quantize(const float* x, int64_t cols, int32_t num_tokens, int32_t token_begin,
              int32_t token_end, ActivationBlock* blocks);
void linear_quantized(const LinearJob& job, const LinearTile& tile);
void linear_float(const LinearJob& job, const LinearTile& tile);
void rms_norm(const RmsNormArgs<float>& args, int64_t row_begin, int64_t row_end);
void activation(const ActivationArgs<float>& args, int64_t row_begin, int64_t row_end);
void rope_kv(const RopeKvArgs<float>& args, int32_t token_begin, int32_t token_end);
void attention(const AttentionArgs<float>& args, const AttentionTile& tile, float* scratch);

}  // namespace baton::BATON_ISA
