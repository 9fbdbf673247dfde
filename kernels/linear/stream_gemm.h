// Matrix products of up to 128 tokens, weights streaming through shared memory by Hopper's copy
// engine into its asynchronous tensor cores. Up to 64 tokens are those' columns, 16 to 64 of them,
// and the weights their rows of 64; more tokens are their rows, and the weights their columns. What
// a row of y holds does not depend on how many tokens there are, whichever way they are taken.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/linear/small_gemm.h"

namespace baton {

inline constexpr int32_t kStreamTokensMax = 128;

// How a product is cut up: a block takes tile_rows rows of the weights over one of `slices` parts
// of their columns; the blocks of a tile are a cluster and add their sums up. The bits of a result
// depend on `slices` alone.
struct StreamPlan {
  int32_t slices = 1;       // 1, 2, 4 or 8
  int32_t tile_rows = 256;  // a multiple of 8 up to 256
  bool operator==(const StreamPlan&) const = default;
};

bool is_stream_plan(const StreamPlan& plan);

// A multiprocessor has room for two blocks of low tiles, or for one of higher ones.
inline constexpr int32_t kLowTileRows = 128, kTileRowsMax = 256;

// The plan that keeps all multiprocessors equally long at work and reads x seldom; of those with so
// many slices, unless 0, and so many rows at most.
StreamPlan plan_stream_gemm(int64_t rows, int64_t cols, int32_t num_sms, int32_t slices = 0,
                            int32_t tile_rows_max = kTileRowsMax);

// Raises the kernels' shared memory limits; once before the first product.
void prepare_stream_gemm();

// Enqueues on `stream`. The weights are read before the kernel waits for earlier ones (launch.h),
// so nothing may write weights in the same stream without a pause. REQUIRES: num_tokens <=
// kStreamTokensMax.
void stream_gemm(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream);

// For benchmarks: how many clusters of so many blocks the GPU runs at once.
int32_t stream_clusters_max(int32_t slices);

}  // namespace baton
