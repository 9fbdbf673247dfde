// Rows of an f16 table on a GPU, as float32. Contract: embedding.h; both only enqueue on `stream`.
// Rows are 16-byte aligned (cols a multiple of 8).
#pragma once

#include <cuda_runtime.h>

#include "kernels/activation_types.h"
#include "kernels/embedding/embedding.h"

namespace baton {

//   table  f16 device [vocab, hidden]
// An id outside [0, vocab) stops the kernel with an error.
void embedding_cuda(const F16* table, int64_t vocab, int64_t hidden, const int32_t* ids, float* y,
                    int32_t num_tokens, cudaStream_t stream);

void gather_rows_cuda(const GatherRowsArgs<float>& args, cudaStream_t stream);

}  // namespace baton
