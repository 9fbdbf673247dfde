// Rows of a bfloat16 table on a GPU. Contract: embedding.h; both only enqueue on `stream`. Rows are
// 16-byte aligned (cols a multiple of 8).
#pragma once

#include <cuda_runtime.h>

#include "kernels/bf16.h"
#include "kernels/embedding/embedding.h"

namespace baton {

//   table  bf16 device [vocab, hidden]
// An id outside [0, vocab) stops the kernel with an error.
void embedding_cuda(const Bf16* table, int64_t vocab, int64_t hidden, const int32_t* ids, Bf16* y,
                    int32_t num_tokens, cudaStream_t stream);

void gather_rows_cuda(const GatherRowsArgs<Bf16>& args, cudaStream_t stream);

}  // namespace baton
