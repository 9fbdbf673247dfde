// The pages of a layer as a tensor for the GPU's copy engine.
#pragma once

#include <cuda.h>

#include "kernels/attention/attention_params.h"

namespace baton {

// Dimensions: head_dim, token of a page, K heads then V heads, page; boxes of 64 x box_tokens
// (tensor_map.h). Throws CudaError.
CUtensorMap pages_map(const AttentionParams& params, int32_t head_dim, int32_t box_tokens,
                      CUtensorMapL2promotion promotion);

}  // namespace baton
