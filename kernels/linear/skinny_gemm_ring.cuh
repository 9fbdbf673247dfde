// How skinny_gemm.cu cuts a product up, and how a thread brings its share of W and x into shared
// memory: its own ring of asynchronous copies. Device code of that file only.
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/skinny_gemm.h"

namespace baton {

constexpr int kSlices = 8;
constexpr int kBlockCols = 64;  // slices are whole numbers of these
constexpr int kHalfCols = 32;   // two steps of the instruction
constexpr int kTileRows = 16, kTileTokens = 8;

template <int kMTiles_, int kNTiles_, int kRowWarps_, int kSliceWarps_, int kHalves_, int kStages_,
          bool kPersistent_>
struct Shape {
  static constexpr int kMTiles = kMTiles_, kNTiles = kNTiles_;
  static constexpr int kRowWarps = kRowWarps_, kSliceWarps = kSliceWarps_;
  static constexpr int kHalves = kHalves_;  // of kHalfCols in a stage
  static constexpr int kStages = kStages_;
  // One block a multiprocessor takes tile after tile and loads the next one while it adds up the
  // last; else each block has one tile, and several share a multiprocessor.
  static constexpr bool kPersistent = kPersistent_;
  static constexpr int kCluster = kSlices / kSliceWarps;
  static constexpr int kWarps = kRowWarps * kSliceWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kWarpRows = kMTiles * kTileRows;
  static constexpr int kRows = kRowWarps * kWarpRows;
  static constexpr int kStageCols = kHalves * kHalfCols;
  // 16-byte pieces that a thread holds of a stage: of W two rows a tile and half, of x one.
  static constexpr int kWeightPieces = 2 * kMTiles * kHalves, kXPieces = kNTiles * kHalves;
  static constexpr int kWeightVecs = kStages * kWeightPieces * 32;  // a warp's ring
  static constexpr int kXVecs = kStages * kXPieces * 32;            // a slice's ring
  // Stages on their way while one is computed. Where warps share x, a stage's place is free only
  // when all of them have met again.
  static constexpr int kAhead = kRowWarps == 1 ? kStages : kStages - 1;
  // Sums of a warp, [tokens][rows], up to 32 tokens at a time; padded so that lanes that differ in
  // the token write to different banks.
  static constexpr int kSumStride = kWarpRows + 4;
  static constexpr int kSumTiles = kNTiles < 4 ? kNTiles : 4;
  static constexpr int kSumVecs = kSumStride * kSumTiles * kTileTokens / 4;
  // Where the sums lie: beside the rings that go on being filled, or in the warp's own ring.
  static constexpr int kSumsAt = kPersistent ? kWarps * kWeightVecs : 0;
  static constexpr int kSumPitch = kPersistent ? kSumVecs : kWeightVecs;
  static constexpr int kXAt = kWarps * (kWeightVecs + (kPersistent ? kSumVecs : 0));
  static constexpr int kSharedBytes = (kXAt + kSliceWarps * kXVecs) * int{sizeof(uint4)};
  static_assert(kSumVecs <= kSumPitch);
  static_assert(kSliceWarps * kCluster == kSlices);
  static_assert(kSharedBytes <= 227 * 1024);
};

// What a block (and a cluster) works on.
struct Work {
  int tile, tile_step, num_tiles;
  int begin_col;  // of the warp's slice
  int count;      // stages a tile
};

// One thread's share of the loads: its rings, and what comes next. Rows and tokens that do not
// exist are not loaded: what their slots happen to hold reaches no sum that is stored.
template <typename S>
class Ring {
 public:
  __device__ Ring(const SkinnyArgs& args, uint4* shared, const Work& work)
      : work_(work), cols_(args.cols), weight_tile_(work.tile) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    row_warp_ = warp % S::kRowWarps;
    weight_slots_ = shared + warp * S::kWeightVecs + lane;
    x_slots_ = shared + S::kXAt + warp / S::kRowWarps * S::kXVecs + lane;
    const int row = work.tile * S::kRows + row_warp_ * S::kWarpRows + g;
    const int64_t col = work.begin_col + t * kVecElems;
    weight_ = args.weight + row * cols_ + col;
    x_ = args.x + g * cols_ + col;
    rows_left_ = args.rows - row;
    tokens_left_ = args.num_tokens - g;
  }

  __device__ const uint4& weight(int stage, int piece) const {
    return weight_slots_[(stage * S::kWeightPieces + piece) * 32];
  }
  __device__ const uint4& x(int stage, int piece) const {
    return x_slots_[(stage * S::kXPieces + piece) * 32];
  }

  // The next stage of weights, into place `stage`; nothing after the last tile.
  __device__ void load_weight(int stage) {
    if (weight_tile_ >= work_.num_tiles || work_.count == 0) return;
#pragma unroll
    for (int piece = 0; piece < S::kWeightPieces; ++piece) {
      if (8 * (piece / S::kHalves) < rows_left_) {
        copy_async_16(weight_slots_ + (stage * S::kWeightPieces + piece) * 32,
                      weight_ + 8 * (piece / S::kHalves) * cols_ + piece % S::kHalves * kHalfCols);
      }
    }
    weight_ += S::kStageCols;
    if (++weight_stage_ < work_.count) return;
    weight_stage_ = 0;
    weight_tile_ += work_.tile_step;
    weight_ += int64_t{work_.tile_step} * S::kRows * cols_ - work_.count * S::kStageCols;
    rows_left_ -= work_.tile_step * S::kRows;
  }
  // Likewise x, of which this warp loads every kRowWarps-th piece.
  __device__ void load_x(int stage) {
    if (x_tile_ >= work_.num_tiles || work_.count == 0) return;
    const Bf16* from = x_ + x_stage_ * S::kStageCols;
#pragma unroll
    for (int piece = 0; piece < S::kXPieces; ++piece) {
      if (piece % S::kRowWarps == row_warp_ && 8 * (piece / S::kHalves) < tokens_left_) {
        copy_async_16(x_slots_ + (stage * S::kXPieces + piece) * 32,
                      from + 8 * (piece / S::kHalves) * cols_ + piece % S::kHalves * kHalfCols);
      }
    }
    if (++x_stage_ < work_.count) return;
    x_stage_ = 0;
    x_tile_ += work_.tile_step;
  }

 private:
  const Work& work_;
  const int64_t cols_;
  uint4* weight_slots_;  // [stages][pieces], 32 apart
  uint4* x_slots_;
  const Bf16* weight_;
  const Bf16* x_;
  int row_warp_;
  int rows_left_;    // row g + 8 i of the warp's exists if 8 i < rows_left
  int tokens_left_;  // likewise token g + 8 i
  int weight_tile_, weight_stage_ = 0;
  int x_tile_ = weight_tile_, x_stage_ = 0;
};

}  // namespace baton
