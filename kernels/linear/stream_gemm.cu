// y^T = W x^T by wgmma: 64 rows of the weights are the instruction's rows, the tokens its columns.
// A block of two computing warpgroups and one copying thread takes up to 256 rows over a slice of
// the columns. The thread keeps a ring of stages filled, each of 64 columns of the block's rows and
// of all tokens, several tens of kilobytes on their way at any time; it fetches the first stages'
// weights while the kernels before this one still run. Blocks of up to 128 rows take half a
// multiprocessor's shared memory: one of the next product finds room beside one of this. Rows
// beyond a tile's are computed from whatever their places hold and dropped.
#include "base/check.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/linear/small_gemm_finish.cuh"
#include "kernels/linear/stream_gemm.h"

namespace baton {
namespace {

constexpr int kStageCols = 64;  // rows of 128 bytes: what the swizzle covers
constexpr int kRowBytes = kStageCols * 2;
constexpr int kMmaRows = 64;
constexpr int kGroups = 2, kGroupThreads = 128;
constexpr int kComputing = kGroups * kGroupThreads;
constexpr int kThreads = kComputing + 32;
// What a block takes for its ring: the small kernels before and after find room beside one block,
// or beside two.
constexpr int kRingBytesAlone = 208 * 1024, kRingBytesOfTwo = 111 * 1024;
constexpr int kStagesMax = 12;

// kMmas: of 64 rows, a warpgroup.
template <int kTokens_, int kMmas_>
struct Shape {
  static constexpr int kTokens = kTokens_, kMmas = kMmas_;
  static constexpr int kTileRowsMax = kGroups * kMmas * kMmaRows;
  static constexpr int kBlocksPerSm = kMmas == 1 ? 2 : 1;
  static constexpr int kXBytes = kTokens * kRowBytes;  // of a stage
  static constexpr int kRingBytes = kBlocksPerSm == 2 ? kRingBytesOfTwo : kRingBytesAlone;
  static constexpr int kSharedBytes = kRingBytes + 16 * kStagesMax + 1024;  // aligned by hand
  // Sums take the ring's place, [tokens][rows], padded so that lanes that differ in the token write
  // to different banks.
  static constexpr int kSumStride = kTileRowsMax + 4;
  static_assert(kSumStride * kTokens * int{sizeof(float)} <= kRingBytes);
  // A multiprocessor has 228 KiB, of which every block takes one for itself.
  static_assert(kBlocksPerSm * (kSharedBytes + 1024) <= 228 * 1024);
};

// Stages of tile_rows rows of weights, then the tokens. The tensor cores read the rows of a whole
// tile whatever tile_rows is: those behind the last stage's are inside the ring too.
template <typename S>
struct Ring {
  uint32_t base;
  int weight_bytes, stage_bytes, num_stages;

  __device__ Ring(uint32_t at, int tile_rows)
      : base(at),
        weight_bytes((tile_rows * kRowBytes + 1023) & ~1023),
        stage_bytes(weight_bytes + S::kXBytes) {
    const int fit = min(S::kRingBytes / stage_bytes,
                        (S::kRingBytes - S::kTileRowsMax * kRowBytes) / stage_bytes + 1);
    num_stages = min(fit, kStagesMax);
  }
  __device__ uint32_t weight(int stage) const { return base + stage * stage_bytes; }
  __device__ uint32_t x(int stage) const { return weight(stage) + weight_bytes; }
  __device__ uint32_t full(int stage) const { return base + S::kRingBytes + 16 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stage) + 8; }
};

// A place in the ring and the parity of its barriers.
struct Position {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance(int num_stages) {
    if (++stage == num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// What a block computes: rows from first_row on, over stages [begin, end) of the columns.
struct Part {
  int first_row, begin, end;
};

// The copying thread.
template <typename S>
struct Copier {
  const Ring<S>& ring;
  const Part part;
  const int tile_rows;
  const CUtensorMap& weight;
  const CUtensorMap& x;
  const uint64_t policy = stream_policy();
  const int early = min(part.end - part.begin, ring.num_stages);

  __device__ void copy_weight(int stage, int index) const {
    barrier_arrive_expect(ring.full(stage), (tile_rows + S::kTokens) * kRowBytes);
    tensor_copy(ring.weight(stage), weight, ring.full(stage), index * kStageCols, part.first_row,
                policy);
  }
  __device__ void copy_x(int stage, int index) const {
    tensor_copy(ring.x(stage), x, ring.full(stage), index * kStageCols, 0);
  }
  // What needs no earlier kernel.
  __device__ void begin() const {
    for (int s = 0; s < ring.num_stages; ++s) {
      barrier_init(ring.full(s), 1);
      barrier_init(ring.empty(s), kComputing / 32);
    }
    barrier_init_fence();
    for (int s = 0; s < early; ++s) copy_weight(s, part.begin + s);
  }
  __device__ void finish() const {
    wait_for_previous_kernels();
    for (int s = 0; s < early; ++s) copy_x(s, part.begin + s);
    Position at;
    for (int index = part.begin + early; index < part.end; ++index) {
      barrier_wait(ring.empty(at.stage), at.parity);
      copy_weight(at.stage, index);
      copy_x(at.stage, index);
      at.advance(ring.num_stages);
    }
  }
};

template <typename S>
using Sums = float[S::kMmas][S::kTokens / 2];

// A warpgroup's. A stage is given back when the tensor cores are done with it, which is known while
// they are at the next one.
template <typename S>
__device__ void multiply(const Ring<S>& ring, int count, Sums<S>& sums) {
  const int first_row = threadIdx.x / kGroupThreads * S::kMmas * kMmaRows;
  Position at;
  int before = -1;  // the stage before this one
  for (int i = 0; i < count; ++i) {
    barrier_wait(ring.full(at.stage), at.parity);
    const uint64_t weight = tile_descriptor(ring.weight(at.stage) + first_row * kRowBytes);
    const uint64_t x = tile_descriptor(ring.x(at.stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStageCols / 16; ++k) {
#pragma unroll
      for (int m = 0; m < S::kMmas; ++m) {
        wgmma(sums[m], weight + ((m * kMmaRows * kRowBytes + k * 32) >> 4), x + (k * 32 >> 4),
              true);
      }
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (before >= 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty(before));
    before = at.stage;
    at.advance(ring.num_stages);
  }
  wgmma_wait<0>();
#pragma unroll
  for (int m = 0; m < S::kMmas; ++m) wgmma_pin(sums[m]);
}

template <typename S>
__device__ void store_sums(const Sums<S>& sums, float* to) {
  const int group = threadIdx.x / kGroupThreads, warp = threadIdx.x % kGroupThreads / 32;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < S::kMmas; ++m) {
    const int first_row = (group * S::kMmas + m) * kMmaRows + warp * 16 + g;
#pragma unroll
    for (int i = 0; i < S::kTokens / 2; ++i) {
      const int token = i / 4 * 8 + 2 * t + i % 2;
      to[token * S::kSumStride + first_row + i % 4 / 2 * 8] = sums[m][i];
    }
  }
}

// Adds the slices of the cluster's blocks, in order; each block finishes its share of the elements.
template <typename S, int kSlices>
__device__ void add_slices(const SmallGemmArgs& args, const float* sums, int first_row,
                           int tile_rows) {
  const bool whole = args.rows % 4 == 0 && args.y_stride % 4 == 0;
  const int quads = tile_rows / 4, rank = blockIdx.x % kSlices;
  const int count = args.num_tokens * quads;
  for (int i = rank * kThreads + threadIdx.x; i < count; i += kSlices * kThreads) {
    const int token = i / quads, row = i % quads * 4;
    const float* from = sums + token * S::kSumStride + row;
    float4 sum;
    if constexpr (kSlices == 1) {
      sum = *reinterpret_cast<const float4*>(from);
    } else {
      float4 slice[kSlices];
#pragma unroll
      for (int s = 0; s < kSlices; ++s) slice[s] = load_shared_of(from, s);
      sum = slice[0];
#pragma unroll
      for (int s = 1; s < kSlices; ++s) sum = sum + slice[s];
    }
    finish_four(args, whole, token, first_row + row, sum);
  }
}

template <typename S>
__global__ void __launch_bounds__(kThreads, S::kBlocksPerSm)
    stream_gemm_kernel(const SmallGemmArgs args, const StreamPlan plan,
                       const __grid_constant__ CUtensorMap weight,
                       const __grid_constant__ CUtensorMap x) {
  extern __shared__ unsigned char memory[];
  unsigned char* const shared = memory + (-shared_address(memory) & 1023);
  auto* const sums_at = reinterpret_cast<float*>(shared);
  const Ring<S> ring(shared_address(shared), plan.tile_rows);
  const int stages = args.cols / kStageCols;
  const int tile = blockIdx.x / plan.slices, slice = blockIdx.x % plan.slices;
  const Part part = {tile * plan.tile_rows, stages * slice / plan.slices,
                     stages * (slice + 1) / plan.slices};
  const bool copies = threadIdx.x == kComputing;
  const Copier<S> copier = {ring, part, plan.tile_rows, weight, x};
  if (copies) copier.begin();
  __syncthreads();
  let_next_kernel_start();
  if (threadIdx.x < kComputing) {
    Sums<S> sums = {};
    multiply<S>(ring, part.end - part.begin, sums);
    group_sync(1, kComputing);  // everybody is done with the ring
    store_sums<S>(sums, sums_at);
  } else {
    if (copies) copier.finish();
    __syncwarp();
  }
  wait_for_previous_kernels();  // each thread that touches y
  if (plan.slices == 1) {
    __syncthreads();
    return add_slices<S, 1>(args, sums_at, part.first_row, plan.tile_rows);
  }
  sync_cluster();
  if (plan.slices == 2) add_slices<S, 2>(args, sums_at, part.first_row, plan.tile_rows);
  if (plan.slices == 4) add_slices<S, 4>(args, sums_at, part.first_row, plan.tile_rows);
  if (plan.slices == 8) add_slices<S, 8>(args, sums_at, part.first_row, plan.tile_rows);
  sync_cluster();  // the other blocks may still read our sums
}

// A row-major bf16 matrix, copied in boxes of box_rows rows of 128 bytes.
CUtensorMap matrix_map(const Bf16* data, int64_t rows, int64_t cols, int32_t box_rows) {
  static const CudaDriver driver = load_cuda_driver();  // looked up once
  const uint64_t sizes[] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
  const uint64_t strides[] = {static_cast<uint64_t>(cols) * sizeof(Bf16)};
  const uint32_t box[] = {kStageCols, static_cast<uint32_t>(box_rows)};
  const uint32_t steps[] = {1, 1};
  CUtensorMap map;
  driver_check(driver,
               driver.tensor_map_encode_tiled(
                   &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<Bf16*>(data), sizes,
                   strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               "linear");
  return map;
}

template <typename S>
void launch_shape(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  const int32_t tiles = (args.rows + plan.tile_rows - 1) / plan.tile_rows;
  launch("linear",
         {.grid = dim3(static_cast<unsigned>(tiles * plan.slices)),
          .block = dim3(kThreads),
          .shared_bytes = S::kSharedBytes,
          .cluster = plan.slices},
         stream, stream_gemm_kernel<S>, args, plan,
         matrix_map(args.weight, args.rows, args.cols, plan.tile_rows),
         matrix_map(args.x, args.num_tokens, args.cols, S::kTokens));
}

template <int kTokens>
void launch_tokens(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  using Low = Shape<kTokens, 1>;
  if (plan.tile_rows <= Low::kTileRowsMax) return launch_shape<Low>(args, plan, stream);
  launch_shape<Shape<kTokens, 2>>(args, plan, stream);
}

template <typename S>
void raise_shared_limit() {
  cuda_check(cudaFuncSetAttribute(stream_gemm_kernel<S>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes),
             "linear");
}
template <int kTokens>
void raise_shared_limits() {
  raise_shared_limit<Shape<kTokens, 1>>();
  raise_shared_limit<Shape<kTokens, 2>>();
}

}  // namespace

void prepare_stream_gemm() {
  raise_shared_limits<16>();
  raise_shared_limits<32>();
  raise_shared_limits<64>();
  raise_shared_limits<128>();
}

void stream_gemm(const SmallGemmArgs& args, const StreamPlan& plan, cudaStream_t stream) {
  CHECK(small_gemm_takes(args.rows, args.cols)) << "stream_gemm";
  CHECK(is_stream_plan(plan)) << "stream_gemm";
  CHECK_LE(args.num_tokens, kStreamTokensMax) << "stream_gemm";
  if (args.num_tokens == 0) return;
  if (args.num_tokens <= 16) return launch_tokens<16>(args, plan, stream);
  if (args.num_tokens <= 32) return launch_tokens<32>(args, plan, stream);
  if (args.num_tokens <= 64) return launch_tokens<64>(args, plan, stream);
  launch_tokens<128>(args, plan, stream);
}

int32_t stream_clusters_max(int32_t slices) {
  using S = Shape<32, 2>;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(slices);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(slices) * 1024);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = S::kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  cuda_check(cudaOccupancyMaxActiveClusters(&count, stream_gemm_kernel<S>, &config), "linear");
  return count;
}

}  // namespace baton
