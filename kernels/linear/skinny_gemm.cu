// y^T = W x^T on tensor cores: the weights are the operand of 16 rows, tokens that of 8 columns. A
// warp takes kMTiles * 16 rows of W over one of 8 slices of cols. The warps of a block lie in a
// grid, kRowWarps of them below each other and kSliceWarps beside each other; a cluster of blocks
// holds all slices of its rows and adds them up at the end.
//
// Each warp streams its weights through a ring of its own in shared memory (skinny_gemm_ring.cuh),
// deep enough to cover the memory's latency, so nothing but x is shared: the warps of one slice
// meet at a barrier once a stage. The order of cols inside a product is free as long as W and x
// agree: thread t of a row's four takes cols [8 t, 8 t + 8) of 32 where the instruction would have
// pairs, hence reads 16 bytes at a time.
#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/skinny_gemm.h"
#include "kernels/linear/skinny_gemm_ring.cuh"
#include "kernels/linear/small_gemm_finish.cuh"

namespace baton {
namespace {

template <typename S>
using Sums = float[S::kMTiles][S::kNTiles][4];

template <typename S, typename E>
__device__ void multiply_stage(const Ring<S>& ring, int stage, Sums<S>& sums) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 x[S::kNTiles];
#pragma unroll
    for (int n = 0; n < S::kNTiles; ++n) x[n] = ring.x(stage, n * kTileTokens + g, 4 * half + t);
#pragma unroll
    for (int m = 0; m < S::kMTiles; ++m) {
      const uint4 a = ring.weight(stage, m * kTileRows + g, 4 * half + t);
      const uint4 b = ring.weight(stage, m * kTileRows + g + 8, 4 * half + t);
#pragma unroll
      for (int n = 0; n < S::kNTiles; ++n) {
        mma_16x8x16<E>(sums[m][n], {a.x, b.x, a.y, b.y}, x[n].x, x[n].y);
      }
#pragma unroll
      for (int n = 0; n < S::kNTiles; ++n) {
        mma_16x8x16<E>(sums[m][n], {a.z, b.z, a.w, b.w}, x[n].z, x[n].w);
      }
    }
  }
}

// All stages of a warp's slice; its first ones are on their way.
template <typename S, typename E>
__device__ __forceinline__ void multiply(const Ring<S>& ring, int count, int slice_warp,
                                         Sums<S>& sums) {
  int stage = 0;
  for (int i = 0; i < count; ++i) {
    const auto refill = [&](int place) {
      if (i + S::kAhead < count) {
        ring.load_weight(place, i + S::kAhead);
        ring.load_x(place, i + S::kAhead);
      }
      commit_copies();
    };
    wait_for_copies<S::kAhead - 1>();
    if constexpr (S::kRowWarps == 1) {
      __syncwarp();  // the other lanes' copies have arrived too
      multiply_stage<S, E>(ring, stage, sums);
      __syncwarp();
      refill(stage);
    } else {
      // Everybody's copies of this stage have arrived, and everybody is done with the last one.
      group_sync_aligned(1 + slice_warp, S::kRowWarps * 32);
      refill(stage == 0 ? S::kStages - 1 : stage - 1);
      multiply_stage<S, E>(ring, stage, sums);
    }
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
  }
}

// The slice's sums of a warp.
template <typename S>
__device__ void store_sums(const Sums<S>& sums, float* to) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < S::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < S::kNTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * kTileTokens + 2 * t + i % 2, row = m * kTileRows + g + i / 2 * 8;
        to[token * S::kSumStride + row] = sums[m][n][i];
      }
    }
  }
}

// The slices of all blocks of the cluster, added pairwise, four rows at a time.
template <typename S>
__device__ void add_slices(const SmallGemmArgs& args, const uint4* shared, int first_row) {
  constexpr int kQuads = S::kRows / 4;
  const bool whole = args.rows % 4 == 0 && args.y_stride % 4 == 0;
  const int rank = blockIdx.x % S::kCluster;
  const int count = args.num_tokens * kQuads;
  for (int i = rank * S::kThreads + threadIdx.x; i < count; i += S::kThreads * S::kCluster) {
    const int token = i / kQuads, row = i % kQuads * 4;
    float4 slice[kSlices];
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const int warp = s % S::kSliceWarps * S::kRowWarps + row / S::kWarpRows;
      const auto* sums = reinterpret_cast<const float*>(shared + warp * S::kWeightVecs) +
                         token * S::kSumStride + row % S::kWarpRows;
      slice[s] = S::kCluster == 1 ? *reinterpret_cast<const float4*>(sums)
                                  : load_shared_of(sums, s / S::kSliceWarps);
    }
    const float4 sum = ((slice[0] + slice[1]) + (slice[2] + slice[3])) +
                       ((slice[4] + slice[5]) + (slice[6] + slice[7]));
    finish_four(args, whole, token, first_row + row, sum);
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1) skinny_gemm_kernel(const SmallGemmArgs args) {
  extern __shared__ uint4 shared[];
  let_next_kernel_start();
  const int warp = threadIdx.x / 32, row_warp = warp % S::kRowWarps;
  const int slice_warp = warp / S::kRowWarps;
  const int first_row = blockIdx.x / S::kCluster * S::kRows;
  const int slice = blockIdx.x % S::kCluster * S::kSliceWarps + slice_warp;
  const int stages_of_all = args.cols / kGemmStageCols;
  const int begin = stages_of_all * slice / kSlices;
  const int count = stages_of_all * (slice + 1) / kSlices - begin;

  const Ring<S> ring(args, shared, first_row + row_warp * S::kWarpRows, begin * kGemmStageCols);
#pragma unroll
  for (int s = 0; s < S::kAhead; ++s) {
    if (s < count) ring.load_weight(s, s);
  }
  wait_for_previous_kernels();
#pragma unroll
  for (int s = 0; s < S::kAhead; ++s) {
    if (s < count) ring.load_x(s, s);
    commit_copies();
  }

  Sums<S> sums = {};
  if (args.epilogue == GemmEpilogue::kAdd) {
    multiply<S, Bf16>(ring, count, slice_warp, sums);
  } else {
    multiply<S, F16>(ring, count, slice_warp, sums);
  }
  __syncwarp();  // all lanes have read their operands
  store_sums<S>(sums, reinterpret_cast<float*>(shared + warp * S::kWeightVecs));
  if constexpr (S::kCluster == 1) {
    __syncthreads();
    add_slices<S>(args, shared, first_row);
  } else {
    sync_cluster();
    add_slices<S>(args, shared, first_row);
    sync_cluster();  // the other blocks may still read our sums
  }
}

template <typename S>
void raise_shared_limit() {
  cuda_check(cudaFuncSetAttribute(skinny_gemm_kernel<S>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes),
             "skinny_gemm");
}

template <typename S>
int32_t num_tiles(int32_t rows) {
  return (rows + S::kRows - 1) / S::kRows;
}

template <typename S>
void launch_shape(const SmallGemmArgs& args, cudaStream_t stream) {
  launch("linear",
         {.grid = dim3(static_cast<unsigned>(num_tiles<S>(args.rows) * S::kCluster)),
          .block = dim3(S::kThreads),
          .shared_bytes = S::kSharedBytes,
          .cluster = S::kCluster},
         stream, skinny_gemm_kernel<S>, args);
}

// Time in units of a row's: what the last wave of blocks leaves idle counts.
template <typename S>
int64_t rows_of_time(int32_t rows, int32_t num_sms) {
  const int64_t clusters = num_sms / S::kCluster;
  return (num_tiles<S>(rows) + clusters - 1) / clusters * S::kRows;
}

template <typename A, typename B>
void launch_better(const SmallGemmArgs& args, int32_t num_sms, cudaStream_t stream) {
  if (rows_of_time<A>(args.rows, num_sms) <= rows_of_time<B>(args.rows, num_sms)) {
    launch_shape<A>(args, stream);
  } else {
    launch_shape<B>(args, stream);
  }
}

// By the number of tokens; more rows a block where there are more of x to read again in each. Up to
// 8 tokens two blocks share a multiprocessor, or three where there are that many; above, two
// heights, so that the blocks fill the GPU's multiprocessors evenly.
using Tokens8 = Shape<1, 1, 1, 8, 4>;
using Tokens8Many = Shape<1, 1, 1, 8, 3>;
using Tokens16 = Shape<2, 2, 2, 4, 5>;
using Tokens16High = Shape<3, 2, 2, 4, 3>;
using Tokens32 = Shape<2, 4, 2, 4, 4>;
using Tokens32High = Shape<3, 4, 2, 4, 3>;
using Tokens64 = Shape<2, 8, 2, 4, 3>;
using Tokens64Low = Shape<1, 8, 2, 4, 4>;

}  // namespace

void prepare_skinny_gemm() {
  raise_shared_limit<Tokens8>();
  raise_shared_limit<Tokens8Many>();
  raise_shared_limit<Tokens16>();
  raise_shared_limit<Tokens16High>();
  raise_shared_limit<Tokens32>();
  raise_shared_limit<Tokens32High>();
  raise_shared_limit<Tokens64>();
  raise_shared_limit<Tokens64Low>();
}

void skinny_gemm(const SmallGemmArgs& args, int32_t num_sms, cudaStream_t stream) {
  CHECK(small_gemm_takes(args.cols)) << "skinny_gemm";
  CHECK_LE(args.num_tokens, kSkinnyTokensMax) << "skinny_gemm";
  if (args.num_tokens == 0) return;
  if (args.num_tokens <= 8) {
    const bool many = num_tiles<Tokens8>(args.rows) > 2 * num_sms;
    return many ? launch_shape<Tokens8Many>(args, stream) : launch_shape<Tokens8>(args, stream);
  }
  if (args.num_tokens <= 16) return launch_better<Tokens16, Tokens16High>(args, num_sms, stream);
  if (args.num_tokens <= 32) return launch_better<Tokens32, Tokens32High>(args, num_sms, stream);
  launch_better<Tokens64, Tokens64Low>(args, num_sms, stream);
}

}  // namespace baton
