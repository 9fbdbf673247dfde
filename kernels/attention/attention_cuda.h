// Attention on a GPU: the decode kernel (few rows a sequence, bound by reading K and V) and the
// prefill kernels (many rows, bound by the tensor cores) behind the one contract of attention.h.
// Which of them computes a sequence depends on its own number of new tokens alone.
#pragma once

#include <cuda_runtime.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/bf16.h"

namespace baton {

// Enqueues on `stream`; never allocates or synchronises and may be captured in a graph.
// REQUIRES: args.batch.plan (made by AttentionPlanner for this batch) and every pointer in it, the
// sequences and their block tables on the device; bf16 pages; q, y, pages and q_stride aligned to
// 16 bytes; at most kAttentionGroupMax query heads a KV head. head_dim 64, 80, 96, 128 and 256 run
// on tensor cores, other sizes up to kAttentionHeadDimMax on a plain kernel. A sequence of no
// tokens gets zeros in row `row` of y.
void attention_cuda(const AttentionArgs<Bf16>& args, cudaStream_t stream);

}  // namespace baton
