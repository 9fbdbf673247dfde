// y^T = W x^T on tensor cores: the weights are the operand of 16 rows, tokens that of 8 columns. A
// warp takes kMTiles * 16 rows of W over one of 8 slices of cols. The warps of a block lie in a
// grid, kRowWarps of them below each other and kSliceWarps beside each other; a cluster of blocks
// holds all slices of its rows and adds them up at the end.
//
// A thread loads exactly the weights that it computes from, 16 bytes at a time: the order of cols
// inside a product is free as long as W and x agree, so thread t of a row's four takes cols [8 t,
// 8 t + 8) of 32 where the instruction would have pairs. So each thread runs its own ring of
// asynchronous copies through shared memory, deep enough to cover the memory's latency. Only x is
// shared, by the warps of one slice, who meet at a barrier once a stage.
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/skinny_gemm.h"
#include "kernels/linear/skinny_gemm_ring.cuh"

namespace baton {
namespace {

template <typename S>
using Sums = float[S::kMTiles][S::kNTiles][4];

template <typename S>
__device__ void multiply_stage(const Ring<S>& ring, int stage, Sums<S>& sums) {
#pragma unroll
  for (int half = 0; half < S::kHalves; ++half) {
    uint4 x[S::kNTiles];
#pragma unroll
    for (int n = 0; n < S::kNTiles; ++n) x[n] = ring.x(stage, n * S::kHalves + half);
#pragma unroll
    for (int m = 0; m < S::kMTiles; ++m) {
      const uint4 a = ring.weight(stage, 2 * m * S::kHalves + half);
      const uint4 b = ring.weight(stage, (2 * m + 1) * S::kHalves + half);
#pragma unroll
      for (int n = 0; n < S::kNTiles; ++n) {
        mma_16x8x16_bf16(sums[m][n], {a.x, b.x, a.y, b.y}, {x[n].x, x[n].y});
      }
#pragma unroll
      for (int n = 0; n < S::kNTiles; ++n) {
        mma_16x8x16_bf16(sums[m][n], {a.z, b.z, a.w, b.w}, {x[n].z, x[n].w});
      }
    }
  }
}

// The slice's sums of a warp, tokens from kFirst * 8 on.
template <typename S, int kFirst>
__device__ void store_sums(const Sums<S>& sums, float* to) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < S::kMTiles; ++m) {
#pragma unroll
    for (int n = 0; n < S::kSumTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = n * kTileTokens + 2 * t + i % 2, row = m * kTileRows + g + i / 2 * 8;
        to[token * S::kSumStride + row] = sums[m][kFirst + n][i];
      }
    }
  }
}

__device__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ void finish(const SkinnyArgs& args, int token, int row, float sum) {
  if (row >= args.rows) return;
  if (args.bias != nullptr) sum += args.bias[row];
  const int64_t at = token * args.y_stride + row;
  if (args.is_float) {
    static_cast<float*>(args.y)[at] = sum;
    return;
  }
  auto* y = static_cast<__nv_bfloat16*>(args.y) + at;
  *y = __float2bfloat16_rn(args.accumulate ? __bfloat162float(*y) + sum : sum);
}

// Four rows at once; the same arithmetic. REQUIRES: rows and y_stride multiples of 4.
__device__ void finish_four(const SkinnyArgs& args, int token, int row, float4 sum) {
  if (row >= args.rows) return;
  if (args.bias != nullptr) sum = sum + *reinterpret_cast<const float4*>(args.bias + row);
  const int64_t at = token * args.y_stride + row;
  if (args.is_float) {
    *reinterpret_cast<float4*>(static_cast<float*>(args.y) + at) = sum;
    return;
  }
  auto* y = reinterpret_cast<uint2*>(static_cast<Bf16*>(args.y) + at);
  if (args.accumulate) {
    const uint2 old = *y;
    sum = make_float4(bf16_low(old.x), bf16_high(old.x), bf16_low(old.y), bf16_high(old.y)) + sum;
  }
  *y = make_uint2(bf16_pair(sum.x, sum.y), bf16_pair(sum.z, sum.w));
}

// The slices of all blocks of the cluster, added pairwise, four rows at a time.
template <typename S>
__device__ void add_slices(const SkinnyArgs& args, const uint4* sums_of_warps, int first_row,
                           int first_token) {
  constexpr int kQuads = S::kRows / 4;
  const bool whole = args.rows % 4 == 0 && args.y_stride % 4 == 0;
  const int tokens = min(args.num_tokens - first_token, S::kSumTiles * kTileTokens);
  const int rank = blockIdx.x % S::kCluster;
  for (int i = rank * S::kThreads + threadIdx.x; i < tokens * kQuads;
       i += S::kThreads * S::kCluster) {
    const int token = i / kQuads, row = i % kQuads * 4;
    float4 slice[kSlices];
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const int warp = s % S::kSliceWarps * S::kRowWarps + row / S::kWarpRows;
      const auto* sums = reinterpret_cast<const float*>(sums_of_warps + warp * S::kSumPitch) +
                         token * S::kSumStride + row % S::kWarpRows;
      slice[s] = S::kCluster == 1 ? *reinterpret_cast<const float4*>(sums)
                                  : load_shared_of(sums, s / S::kSliceWarps);
    }
    const float4 sum = ((slice[0] + slice[1]) + (slice[2] + slice[3])) +
                       ((slice[4] + slice[5]) + (slice[6] + slice[7]));
    if (whole) {
      finish_four(args, first_token + token, first_row + row, sum);
    } else {
      finish(args, first_token + token, first_row + row, sum.x);
      finish(args, first_token + token, first_row + row + 1, sum.y);
      finish(args, first_token + token, first_row + row + 2, sum.z);
      finish(args, first_token + token, first_row + row + 3, sum.w);
    }
  }
}

template <typename S>
__device__ void sync_slices() {
  if constexpr (S::kCluster == 1) {
    __syncthreads();
  } else {
    sync_cluster();
  }
}

template <typename S, int kFirst = 0>
__device__ void finish_tile(const SkinnyArgs& args, uint4* sums_of_warps, int tile,
                            const Sums<S>& sums) {
  uint4* own = sums_of_warps + threadIdx.x / 32 * S::kSumPitch;
  __syncwarp();  // all lanes have read the slots that this may overwrite
  store_sums<S, kFirst>(sums, reinterpret_cast<float*>(own));
  sync_slices<S>();
  add_slices<S>(args, sums_of_warps, tile * S::kRows, kFirst * kTileTokens);
  sync_slices<S>();  // others may still read our sums
  if constexpr (kFirst + S::kSumTiles < S::kNTiles) {
    finish_tile<S, kFirst + S::kSumTiles>(args, sums_of_warps, tile, sums);
  }
}

template <typename S>
__device__ Work work_of_block(const SkinnyArgs& args) {
  const int slice_warp = threadIdx.x / 32 / S::kRowWarps;
  const int slice = blockIdx.x % S::kCluster * S::kSliceWarps + slice_warp;
  const int num_blocks = args.cols / kBlockCols;
  const int begin = num_blocks * slice / kSlices;
  const int blocks = num_blocks * (slice + 1) / kSlices - begin;
  return {.tile = static_cast<int>(blockIdx.x) / S::kCluster,
          .tile_step = static_cast<int>(gridDim.x) / S::kCluster,
          .num_tiles = (args.rows + S::kRows - 1) / S::kRows,
          .begin_col = begin * kBlockCols,
          .count = blocks * (kBlockCols / S::kStageCols)};
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1) skinny_gemm_kernel(const SkinnyArgs args) {
  extern __shared__ uint4 shared[];
  let_next_kernel_start();
  const Work work = work_of_block<S>(args);
  Ring<S> ring(args, shared, work);
#pragma unroll
  for (int s = 0; s < S::kAhead; ++s) ring.load_weight(s);
  wait_for_previous_kernels();
#pragma unroll
  for (int s = 0; s < S::kAhead; ++s) {
    ring.load_x(s);
    commit_copies();
  }

  int stage = 0;
  const auto refill = [&](int place) {
    ring.load_weight(place);
    ring.load_x(place);
    commit_copies();
  };
  for (int tile = work.tile; tile < work.num_tiles; tile += work.tile_step) {
    Sums<S> sums = {};
    for (int i = 0; i < work.count; ++i) {
      wait_for_copies<S::kAhead - 1>();
      if constexpr (S::kRowWarps > 1) {
        // Everybody's copies of this stage have arrived, and everybody is done with the last one.
        sync_threads_of(1 + threadIdx.x / 32 / S::kRowWarps, S::kRowWarps * 32);
        refill(stage == 0 ? S::kStages - 1 : stage - 1);
      }
      multiply_stage(ring, stage, sums);
      if constexpr (S::kRowWarps == 1) refill(stage);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
    finish_tile<S>(args, shared + S::kSumsAt, tile, sums);
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
void launch_shape(const SkinnyArgs& args, int32_t num_sms, cudaStream_t stream) {
  const int32_t tiles = num_tiles<S>(args.rows);
  const int32_t clusters = S::kPersistent ? std::min(tiles, num_sms / S::kCluster) : tiles;
  launch("linear",
         {.grid = dim3(static_cast<unsigned>(clusters * S::kCluster)),
          .block = dim3(S::kThreads),
          .shared_bytes = S::kSharedBytes,
          .cluster = S::kCluster},
         stream, skinny_gemm_kernel<S>, args);
}

// Time in units of a row's: what the last tiles leave idle counts.
template <typename S>
int64_t rows_of_time(int32_t rows, int32_t num_sms) {
  const int64_t clusters = num_sms / S::kCluster;
  return (num_tiles<S>(rows) + clusters - 1) / clusters * S::kRows;
}

template <typename A, typename B>
void launch_better(const SkinnyArgs& args, int32_t num_sms, cudaStream_t stream) {
  if (rows_of_time<A>(args.rows, num_sms) <= rows_of_time<B>(args.rows, num_sms)) {
    launch_shape<A>(args, num_sms, stream);
  } else {
    launch_shape<B>(args, num_sms, stream);
  }
}

// By the number of tokens; more rows a block where there are more of x to read again in each. Up to
// 8 tokens two blocks share a multiprocessor, or three where there are that many; above, two
// heights, so that the blocks fill the GPU's multiprocessors evenly.
using Tokens8 = Shape<1, 1, 1, 8, 2, 4, false>;
using Tokens8Many = Shape<1, 1, 1, 8, 2, 3, false>;
using Tokens16 = Shape<2, 2, 2, 4, 2, 4, true>;
using Tokens16High = Shape<3, 2, 2, 4, 2, 3, true>;
using Tokens32 = Shape<2, 4, 2, 4, 2, 3, true>;
using Tokens32High = Shape<3, 4, 2, 4, 1, 5, true>;
using Tokens64 = Shape<2, 8, 2, 4, 1, 5, true>;
using Tokens64High = Shape<3, 8, 2, 4, 1, 4, true>;

}  // namespace

void prepare_skinny_gemm() {
  raise_shared_limit<Tokens8>();
  raise_shared_limit<Tokens8Many>();
  raise_shared_limit<Tokens16>();
  raise_shared_limit<Tokens16High>();
  raise_shared_limit<Tokens32>();
  raise_shared_limit<Tokens32High>();
  raise_shared_limit<Tokens64>();
  raise_shared_limit<Tokens64High>();
}

void skinny_gemm(const SkinnyArgs& args, int32_t num_sms, cudaStream_t stream) {
  CHECK_EQ(args.cols % kBlockCols, 0) << "skinny_gemm";
  CHECK_LE(args.num_tokens, kSkinnyTokensMax) << "skinny_gemm";
  if (args.num_tokens == 0) return;
  if (args.num_tokens <= 8) {
    const bool many = num_tiles<Tokens8>(args.rows) > 2 * num_sms;
    return many ? launch_shape<Tokens8Many>(args, num_sms, stream)
                : launch_shape<Tokens8>(args, num_sms, stream);
  }
  if (args.num_tokens <= 16) return launch_better<Tokens16, Tokens16High>(args, num_sms, stream);
  if (args.num_tokens <= 32) return launch_better<Tokens32, Tokens32High>(args, num_sms, stream);
  launch_better<Tokens64, Tokens64High>(args, num_sms, stream);
}

}  // namespace baton
