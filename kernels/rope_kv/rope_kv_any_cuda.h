// rope_kv for head sizes that are no multiple of 16 (tiny models, odd shapes): correct and plain.
// Same contract as rope_kv_cuda.h.
#pragma once

#include <cuda_runtime.h>

#include "kernels/activation_types.h"
#include "kernels/rope_kv/rope_kv.h"

namespace baton {

// Enqueues only. REQUIRES: head_dim <= 256, an even rotary_dim.
void rope_kv_any_cuda(const RopeKvArgs<Bf16, F16>& args, cudaStream_t stream);

}  // namespace baton
