// y = x W^T by wgmma. A block of two computing warpgroups and one copying thread takes up to 256
// rows of the weights over a slice of the columns. The thread keeps a ring of stages filled, each
// of 64 columns of the block's rows and of all tokens, several tens of kilobytes on their way at
// any time; it fetches the first stages' weights while the kernels before this one still run.
// Blocks of low tiles take half a multiprocessor's shared memory: one of the next product finds
// room beside one of this. Rows beyond a tile's are computed from whatever their places hold and
// dropped.
#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/linear/small_gemm_finish.cuh"
#include "kernels/linear/stream_gemm.h"
#include "kernels/linear/stream_gemm_ring.cuh"

namespace baton {
namespace {

constexpr int kMmaRows = 64;

// Few tokens: y^T = W x^T, 64 rows of the weights being the instruction's rows. A warpgroup
// computes kMmas times as many.
template <int kTokens, int kMmas>
struct FewTokens : Block<kTokens, kGroups * kMmas * kMmaRows> {
  using Sums = float[kMmas][kTokens / 2];
  // Sums take the ring's place, [tokens][rows], padded so that lanes that differ in the token write
  // to different banks.
  static constexpr int kSumStride = FewTokens::kTileRowsMax + 4;

  template <typename E>
  static __device__ __forceinline__ void multiply(uint32_t weight_at, uint32_t x_at, Sums& sums) {
    const int first_row = threadIdx.x / kGroupThreads * kMmas * kMmaRows;
    const uint64_t weight = tile_descriptor(weight_at + first_row * kRowBytes);
    const uint64_t x = tile_descriptor(x_at);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kGemmStageCols / 16; ++k) {
#pragma unroll
      for (int m = 0; m < kMmas; ++m) {
        wgmma<E>(sums[m], weight + ((m * kMmaRows * kRowBytes + k * 32) >> 4), x + (k * 32 >> 4),
                 true);
      }
    }
  }

  static __device__ __forceinline__ void store(const Sums& sums, float* to) {
    const int group = threadIdx.x / kGroupThreads, warp = threadIdx.x % kGroupThreads / 32;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < kMmas; ++m) {
      const int first_row = (group * kMmas + m) * kMmaRows + warp * 16 + g;
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        const int token = i / 4 * 8 + 2 * t + i % 2;
        to[token * kSumStride + first_row + i % 4 / 2 * 8] = sums[m][i];
      }
    }
  }
};

// Up to 128 tokens: y = x W^T, 64 tokens a warpgroup being the instruction's rows and all kRows of
// the tile its columns: they come in eights, and both are read from shared memory less often.
template <int kRows>
struct ManyTokens : Block<kGroups * kMmaRows, kRows> {
  using Sums = float[1][kRows / 2];
  static constexpr int kSumStride = kRows + 8;

  template <typename E>
  static __device__ __forceinline__ void multiply(uint32_t weight_at, uint32_t x_at, Sums& sums) {
    const int first_token = threadIdx.x / kGroupThreads * kMmaRows;
    const uint64_t weight = tile_descriptor(weight_at);
    const uint64_t x = tile_descriptor(x_at + first_token * kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kGemmStageCols / 16; ++k) {
      wgmma<E>(sums[0], x + (k * 32 >> 4), weight + (k * 32 >> 4), true);
    }
  }

  static __device__ __forceinline__ void store(const Sums& sums, float* to) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int first_token = threadIdx.x / 32 * 16 + g;
#pragma unroll
    for (int i = 0; i < kRows / 2; i += 2) {
      const int token = first_token + i % 4 / 2 * 8, row = i / 4 * 8 + 2 * t;
      *reinterpret_cast<float2*>(to + token * kSumStride + row) =
          make_float2(sums[0][i], sums[0][i + 1]);
    }
  }
};

// A warpgroup's. A stage is given back at once: the memory is what is waited for most of the time,
// and the other warpgroup keeps the tensor cores at work.
template <typename B, typename E>
__device__ __forceinline__ void multiply(const Ring<B>& ring, int count, typename B::Sums& sums) {
#pragma unroll
  for (auto& of_one : sums) wgmma_pin(of_one);
  Position at;
  for (int i = 0; i < count; ++i) {
    barrier_wait(ring.full(at.stage), at.parity);
    B::template multiply<E>(ring.weight(at.stage), ring.x(at.stage), sums);
    wgmma_commit();
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty(at.stage));
    at.advance(ring.num_stages);
  }
#pragma unroll
  for (auto& of_one : sums) wgmma_pin(of_one);
}

// Adds the slices of the tile's blocks, in order; each block finishes its share of the elements.
// What another block has takes long to come, so many loads are on their way at once; all of them
// are waited for, hence that block may end when everybody has come here.
template <typename B, int kSlices>
__device__ void add_slices(const SmallGemmArgs& args, const float* sums, const Part& part,
                           int tile_rows) {
  constexpr int kLoads = B::kBlocksPerSm == 1 ? 16 : 8;  // as registers allow
  constexpr int kBatch = kSlices == 1 ? 1 : kLoads / kSlices, kStep = kSlices * kComputing;
  const bool whole = args.rows % 4 == 0 && args.y_stride % 4 == 0;
  const int quads = min(tile_rows, args.rows - part.first_row + 3) / 4;  // of rows that exist
  const int count = args.num_tokens * quads;
  for (int first = part.slice * kComputing + threadIdx.x; first < count; first += kBatch * kStep) {
    float4 slices[kBatch][kSlices];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * kStep;
      if (i >= count) break;
      const float* from = sums + i / quads * B::kSumStride + i % quads * 4;
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        slices[b][s] =
            kSlices == 1 ? *reinterpret_cast<const float4*>(from) : load_shared_of(from, s);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = first + b * kStep;
      if (i >= count) break;
      float4 sum = slices[b][0];
#pragma unroll
      for (int s = 1; s < kSlices; ++s) sum = sum + slices[b][s];
      finish_four(args, whole, i / quads, part.first_row + i % quads * 4, sum);
    }
  }
}

template <typename B>
__global__ void __launch_bounds__(kThreads, B::kBlocksPerSm)
    stream_gemm_kernel(const SmallGemmArgs args, const StreamPlan plan,
                       const __grid_constant__ CUtensorMap weight,
                       const __grid_constant__ CUtensorMap x) {
  static_assert(B::kSumStride * B::kTokens * int{sizeof(float)} <= B::kRingBytes);
  extern __shared__ unsigned char memory[];
  unsigned char* const shared = memory + (-shared_address(memory) & 1023);
  auto* const sums_at = reinterpret_cast<float*>(shared);
  const Ring<B> ring(shared_address(shared), plan.tile_rows);
  const Part part(plan, args.cols);
  const bool copies = threadIdx.x == kComputing;
  const Copier<B> copier = {ring, part, plan.tile_rows, weight, x};
  if (copies) copier.begin();
  __syncthreads();
  let_next_kernel_start();
  if (threadIdx.x >= kComputing) {
    if (copies) copier.finish();
    return;
  }
  typename B::Sums sums = {};
  if (args.epilogue == GemmEpilogue::kAdd) {
    multiply<B, Bf16>(ring, part.end - part.begin, sums);
  } else {
    multiply<B, F16>(ring, part.end - part.begin, sums);
  }
  group_sync(1, kComputing);  // everybody is done with the ring
  B::store(sums, sums_at);
  wait_for_previous_kernels();  // each thread that touches y
  if (plan.slices == 1) {
    group_sync(1, kComputing);
    return add_slices<B, 1>(args, sums_at, part, plan.tile_rows);
  }
  sync_cluster();
  if (plan.slices == 2) add_slices<B, 2>(args, sums_at, part, plan.tile_rows);
  if (plan.slices == 4) add_slices<B, 4>(args, sums_at, part, plan.tile_rows);
  if (plan.slices == 8) add_slices<B, 8>(args, sums_at, part, plan.tile_rows);
  meet_cluster();  // the other blocks may still read our sums
}

// A row-major matrix, copied in boxes of box_rows rows.
CUtensorMap matrix_map(const uint16_t* data, int64_t rows, int64_t cols, int32_t box_rows) {
  const uint64_t sizes[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
  const uint64_t strides_bytes[] = {static_cast<uint64_t>(cols) * sizeof(*data)};
  const uint32_t box[] = {kGemmStageCols, static_cast<uint32_t>(box_rows)};
  return make_tensor_map("linear", data, sizes, strides_bytes, box,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

template <typename B>
void launch_block(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  const int32_t tiles = (args.rows + plan.tile_rows - 1) / plan.tile_rows;
  launch("linear",
         {.grid = dim3(static_cast<unsigned>(tiles * plan.slices)),
          .block = dim3(kThreads),
          .shared_bytes = B::kSharedBytes,
          .cluster = plan.slices},
         stream, stream_gemm_kernel<B>, args, plan,
         matrix_map(args.weight, args.rows, args.cols, plan.tile_rows),
         matrix_map(args.x, args.num_tokens, args.cols, B::kTokens));
}

template <int kTokens>
void launch_few(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  using Low = FewTokens<kTokens, 1>;
  if (plan.tile_rows <= Low::kTileRowsMax) return launch_block<Low>(args, plan, stream);
  launch_block<FewTokens<kTokens, 2>>(args, plan, stream);
}

// By the tile's height.
template <int kRows, int... kHigher>
void launch_many(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  if constexpr (sizeof...(kHigher) > 0) {
    if (plan.tile_rows > kRows) return launch_many<kHigher...>(args, plan, stream);
  }
  launch_block<ManyTokens<kRows>>(args, plan, stream);
}

template <typename B>
void raise_shared_limit() {
  cuda_check(cudaFuncSetAttribute(stream_gemm_kernel<B>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, B::kSharedBytes),
             "linear");
}
template <int kTokens>
void raise_shared_limits() {
  raise_shared_limit<FewTokens<kTokens, 1>>();
  raise_shared_limit<FewTokens<kTokens, 2>>();
}

}  // namespace

void prepare_stream_gemm() {
  raise_shared_limits<16>();
  raise_shared_limits<32>();
  raise_shared_limits<64>();
  raise_shared_limit<ManyTokens<128>>();
  raise_shared_limit<ManyTokens<144>>();
  raise_shared_limit<ManyTokens<208>>();
  raise_shared_limit<ManyTokens<224>>();
  raise_shared_limit<ManyTokens<256>>();
}

void stream_gemm(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  CHECK(small_gemm_takes(args.cols)) << "stream_gemm";
  CHECK(is_stream_plan(plan)) << "stream_gemm";
  CHECK_LE(args.num_tokens, kStreamTokensMax) << "stream_gemm";
  if (args.num_tokens == 0) return;
  if (args.num_tokens <= 16) return launch_few<16>(args, plan, stream);
  if (args.num_tokens <= 32) return launch_few<32>(args, plan, stream);
  if (args.num_tokens <= 64) return launch_few<64>(args, plan, stream);
  launch_many<128, 144, 208, 224, 256>(args, plan, stream);
}

int32_t stream_clusters_max(int32_t slices) {
  using B = FewTokens<32, 2>;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(slices);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(slices) * 1024);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = B::kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  cuda_check(cudaOccupancyMaxActiveClusters(&count, stream_gemm_kernel<B>, &config), "linear");
  return count;
}

}  // namespace baton
