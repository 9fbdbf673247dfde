// Where things lie in the shared memory of a decode attention CTA, and what its producer tells its
// consumers of a tile. Device code only.
#pragma once

#include <cuda.h>

#include "kernels/attention/attention_params.h"

namespace baton {

inline constexpr int32_t kDecodeConsumers = 128;
inline constexpr int32_t kDecodeThreads = kDecodeConsumers + 32;

// What the producer tells the consumers of a stage.
struct alignas(16) DecodeStageInfo {
  int32_t key_begin;    // position of the tile's first key
  int32_t first, last;  // visible to any row of the item, absolute
  int32_t flags;        // kDecode...
  int32_t position;     // of the item's first token
  int32_t first_head;   // of the item's first row, in the group
  int32_t rows;
  int32_t y_row;  // of the item's first token
  int32_t kv_head;
  int32_t slot, unit, num_units;  // slot of the sequence's first unit (or -1); this unit; all
  int32_t part_units;             // in this item
};
// The pages as tensors: boxes for whole tiles, and of 16 keys for the ends of a sequence.
struct DecodeMaps {
  CUtensorMap whole, ends;
  int32_t box_tokens;  // of `whole`: divides the page and the tile
};
inline constexpr int32_t kDecodeEndBox = 16;

inline constexpr int32_t kDecodeItemBegin = 1, kDecodeItemEnd = 2, kDecodeUnitEnd = 4,
                         kDecodeNoKeys = 8, kDecodeStop = 16;

// K and V of a tile lie in blocks of 64 columns, each of rows of 128 bytes with the 128-byte
// swizzle: the eight rows of a tensor core's matrix are in different banks. The last block of sizes
// 80 and 96 is filled up with zeros.
template <int kDim>
struct DecodeLayout {
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kBlocks = (kDim + 63) / 64;
  static constexpr int kBlockBytes = kDecodeTile * 128;
  static constexpr int kTileBytes = kBlocks * kBlockBytes;
  static constexpr int kQBytes = kDecodeRows * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kWeightsStride = kDecodeTile + 8;
  static constexpr int kWeightsBytes = kDecodeRows * kWeightsStride * 2;
  static constexpr int kMaximaBytes = 4 * kDecodeRows * 4;
  static constexpr int kCtasPerSm = kDim > 128 ? 1 : kDecodeCtasPerSm;
  // An SM has 228 KiB, of which every CTA takes one for itself.
  static constexpr int kBudget = 228 * 1024 / kCtasPerSm - 1024 - 1024;  // aligned by hand
  static constexpr int kFixedBytes = kQBytes + kWeightsBytes + kMaximaBytes + 7 * 64 + 16;
  static constexpr int kPerStage = kStageBytes + 16;
  static constexpr int kMaxStages = 6;
  static constexpr int kStagesFit = (kBudget - kFixedBytes) / kPerStage;
  static constexpr int kStages = kStagesFit < kMaxStages ? kStagesFit : kMaxStages;
  // One more than stages: consumers still read a tile's info when they have released its stage.
  static constexpr int kInfos = kStages + 1;
  static constexpr int kSharedBytes = kFixedBytes + kStages * kPerStage + 1024;
  static_assert(kStages >= 2);

  // Offsets; the stages come first.
  static constexpr int kQAt = kStages * kStageBytes;
  static constexpr int kWeightsAt = kQAt + kQBytes;
  static constexpr int kMaximaAt = kWeightsAt + kWeightsBytes;
  static constexpr int kInfoAt = kMaximaAt + kMaximaBytes;
  static constexpr int kBarriersAt = kInfoAt + kInfos * static_cast<int>(sizeof(DecodeStageInfo));
  static constexpr int kVoteAt = kBarriersAt + 16 * kStages;

  // Where in key `key`'s row the 8 columns from 8 * (first + more) on lie; `first` is a multiple of
  // a power of two above `more`.
  static __device__ int32_t column_offset(int32_t first, int32_t more, int32_t key) {
    return first / 8 * kBlockBytes + ((first % 8 * 16) ^ ((more ^ key % 8) * 16));
  }
};

}  // namespace baton
