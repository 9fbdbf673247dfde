// The pages of a layer as a tensor for the GPU's copy engine.
#pragma once

#include <cuda.h>

#include "kernels/attention/attention_params.h"

namespace baton {

// Dimensions: head_dim, token of a page, K heads then V heads, page. Boxes of 64 x box_tokens land
// in shared memory as rows of 128 bytes with the 128-byte swizzle. `promotion`: how much L2 reads
// at once. Throws CudaError.
CUtensorMap pages_map(const AttentionParams& params, int32_t head_dim, int32_t box_tokens,
                      CUtensorMapL2promotion promotion);

}  // namespace baton
