// Attention for head sizes that have no tensor-core kernel (tiny models, odd shapes): correct and
// plain, any head_dim up to kAttentionHeadDimMax. Same contract as attention_cuda.h; needs no plan.
#pragma once

#include <cuda_runtime.h>

#include "kernels/attention/attention.h"
#include "kernels/bf16.h"

namespace baton {

// Enqueues only.
void attention_any_cuda(const AttentionArgs<Bf16>& args, cudaStream_t stream);

}  // namespace baton
