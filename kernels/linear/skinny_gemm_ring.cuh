// How skinny_gemm.cu cuts a product up, and how a warp brings its share of W and x into shared
// memory: a ring of asynchronous copies of its own. Device code of that file only.
#pragma once

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/skinny_gemm.h"

namespace baton {

constexpr int kSlices = 8;  // of whole numbers of stages
constexpr int kTileRows = 16, kTileTokens = 8;

template <int kMTiles_, int kNTiles_, int kRowWarps_, int kSliceWarps_, int kStages_>
struct Shape {
  static constexpr int kMTiles = kMTiles_, kNTiles = kNTiles_;
  static constexpr int kRowWarps = kRowWarps_, kSliceWarps = kSliceWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kCluster = kSlices / kSliceWarps;
  static constexpr int kWarps = kRowWarps * kSliceWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kWarpRows = kMTiles * kTileRows;
  static constexpr int kRows = kRowWarps * kWarpRows;
  // A stage holds 8 vectors of 16 bytes of each row of W and of each token of x.
  static constexpr int kWeightStage = kWarpRows * 8, kXStage = kNTiles * kTileTokens * 8;
  static constexpr int kWeightVecs = kStages * kWeightStage;  // a warp's ring
  static constexpr int kXVecs = kStages * kXStage;            // a slice's ring
  static constexpr int kSharedBytes =
      (kWarps * kWeightVecs + kSliceWarps * kXVecs) * int{sizeof(uint4)};
  // Stages on their way while one is computed. Where warps share x, a stage's place is free only
  // when all of them have met again.
  static constexpr int kAhead = kRowWarps == 1 ? kStages : kStages - 1;
  // Sums take the place of a warp's weights, [tokens][rows], padded so that lanes that differ in
  // the token write to different banks.
  static constexpr int kSumStride = kWarpRows + 4;
  static_assert(kSliceWarps * kCluster == kSlices);
  static_assert(kSharedBytes <= 227 * 1024);
  static_assert(kWeightVecs * 4 >= kSumStride * kNTiles * kTileTokens);
};

// Where vector `col` (of 8) of a row lies in a stage. Eight lanes that read the same half of two
// neighbouring rows, as the tensor cores' operands are read, meet no bank twice; nor do those that
// write a row.
__device__ __forceinline__ int stage_slot(int row, int col) {
  return row * 8 + (col ^ (row & 1) << 2);
}

// One lane's part in the loads of its warp: eight lanes copy a row's 128 bytes, so an instruction
// touches four lines of memory. Rows and tokens that do not exist are not loaded: what their slots
// happen to hold reaches no sum that is stored.
template <typename S>
class Ring {
 public:
  // The warp's rows start at `row`, its slice at `col`.
  __device__ Ring(const SmallGemmArgs& args, uint4* shared, int row, int col) : cols_(args.cols) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lane_row_ = lane / 8;
    row_warp_ = warp % S::kRowWarps;
    weights_ = shared + warp * S::kWeightVecs;
    xs_ = shared + S::kWarps * S::kWeightVecs + warp / S::kRowWarps * S::kXVecs;
    to_ = stage_slot(lane_row_, lane % 8);
    const int64_t at = col + lane % 8 * kVecElems;
    weight_ = args.weight + (row + lane_row_) * cols_ + at;
    x_ = args.x + lane_row_ * cols_ + at;
    rows_ = args.rows - row;
    tokens_ = args.num_tokens;
  }

  __device__ const uint4& weight(int stage, int row, int col) const {
    return weights_[stage * S::kWeightStage + stage_slot(row, col)];
  }
  __device__ const uint4& x(int stage, int token, int col) const {
    return xs_[stage * S::kXStage + stage_slot(token, col)];
  }

  // Stage `index` of the slice into place `stage`. Rows 4 apart have their slots at the same place
  // of their rows, because stage_slot looks at the last bit alone.
  __device__ void load_weight(int stage, int index) const {
#pragma unroll
    for (int row = 0; row < S::kWarpRows; row += 4) {
      if (row + lane_row_ < rows_) {
        copy_async_16(weights_ + stage * S::kWeightStage + row * 8 + to_,
                      weight_ + row * cols_ + index * kGemmStageCols);
      }
    }
  }
  // Of x the warps of a slice load four tokens each in turn.
  __device__ void load_x(int stage, int index) const {
#pragma unroll
    for (int token = 0; token < S::kNTiles * kTileTokens; token += 4) {
      if (token / 4 % S::kRowWarps == row_warp_ && token + lane_row_ < tokens_) {
        copy_async_16(xs_ + stage * S::kXStage + token * 8 + to_,
                      x_ + token * cols_ + index * kGemmStageCols);
      }
    }
  }

 private:
  const int64_t cols_;
  uint4* weights_;
  uint4* xs_;
  const uint16_t* weight_;
  const uint16_t* x_;
  int to_;
  int lane_row_, row_warp_;
  int rows_, tokens_;  // that exist
};

}  // namespace baton
