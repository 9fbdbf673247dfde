// How stream_gemm.cu cuts a product up and brings weights and tokens into shared memory: one thread
// of a block keeps a ring of stages filled, the others empty it. Device code of that file only.
#pragma once

#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/linear/stream_gemm.h"

namespace baton {

constexpr int kRowBytes = kGemmStageCols * 2;  // of a stage: what the swizzle covers
constexpr int kGroups = 2, kGroupThreads = 128;
constexpr int kComputing = kGroups * kGroupThreads;
constexpr int kThreads = kComputing + 32;
// What a block takes for its ring: the small kernels before and after find room beside one block,
// or beside two.
constexpr int kRingBytesAlone = 208 * 1024, kRingBytesOfTwo = 111 * 1024;
constexpr int kStagesMax = 12;

template <int kTokens_, int kTileRowsMax_>
struct Block {
  static constexpr int kTokens = kTokens_, kTileRowsMax = kTileRowsMax_;
  static constexpr int kBlocksPerSm = kTileRowsMax <= kLowTileRows ? 2 : 1;
  static constexpr int kXBytes = kTokens * kRowBytes;  // of a stage
  static constexpr int kRingBytes = kBlocksPerSm == 2 ? kRingBytesOfTwo : kRingBytesAlone;
  static constexpr int kSharedBytes = kRingBytes + 16 * kStagesMax + 1024;  // aligned by hand
  // A multiprocessor has 228 KiB, of which every block takes one for itself.
  static_assert(kBlocksPerSm * (kSharedBytes + 1024) <= 228 * 1024);
};

// What a block computes: rows from first_row on, over stages [begin, end) of the columns.
struct Part {
  int slice, first_row, begin, end;

  __device__ Part(const StreamPlan& plan, int cols)
      : slice(blockIdx.x % plan.slices), first_row(blockIdx.x / plan.slices * plan.tile_rows) {
    const int stages = cols / kGemmStageCols;
    begin = stages * slice / plan.slices;
    end = stages * (slice + 1) / plan.slices;
  }
};

// Stages of tile_rows rows of weights, then the tokens. The tensor cores read the rows of a whole
// tile whatever tile_rows is: those behind the last stage's are inside the ring too.
template <typename B>
struct Ring {
  uint32_t base;
  int weight_bytes, stage_bytes, num_stages;

  __device__ Ring(uint32_t at, int tile_rows)
      : base(at),
        weight_bytes((tile_rows * kRowBytes + 1023) & ~1023),
        stage_bytes(weight_bytes + B::kXBytes) {
    const int fit = min(B::kRingBytes / stage_bytes,
                        (B::kRingBytes - B::kTileRowsMax * kRowBytes) / stage_bytes + 1);
    num_stages = min(fit, kStagesMax);
  }
  __device__ uint32_t weight(int stage) const { return base + stage * stage_bytes; }
  __device__ uint32_t x(int stage) const { return weight(stage) + weight_bytes; }
  __device__ uint32_t full(int stage) const { return base + B::kRingBytes + 16 * stage; }
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

// The copying thread.
template <typename B>
struct Copier {
  const Ring<B>& ring;
  const Part& part;
  const int tile_rows;
  const CUtensorMap& weight;
  const CUtensorMap& x;
  const uint64_t policy = stream_policy();
  const int early = min(part.end - part.begin, ring.num_stages);

  __device__ void copy_weight(int stage, int index) const {
    barrier_arrive_expect(ring.full(stage), (tile_rows + B::kTokens) * kRowBytes);
    tensor_copy(ring.weight(stage), weight, ring.full(stage), index * kGemmStageCols,
                part.first_row, policy);
  }
  __device__ void copy_x(int stage, int index) const {
    tensor_copy(ring.x(stage), x, ring.full(stage), index * kGemmStageCols, 0);
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

}  // namespace baton
