// Norm, rotation and the write of K and V on a GPU, one kernel. Contract: rope_kv.h; only enqueues
// on `stream`. Fast where head_dim is a multiple of 16, at most 512, and rotary_dim too where the
// rotation is "half" style, else a multiple of 8 (pointers, page_bytes and layer_offset are then
// multiples of 16 bytes); other sizes go to rope_kv_any_cuda.h. Pages are bf16 or f16. qkv stays as
// it is.
#pragma once

#include <cuda_runtime.h>

#include "kernels/activation_types.h"
#include "kernels/rope_kv/rope_kv.h"

namespace baton {

void rope_kv_cuda(const RopeKvArgs<Bf16, F16>& args, cudaStream_t stream);

}  // namespace baton
