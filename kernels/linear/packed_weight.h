// How a quantised weight lies in memory once prepared for the CPU: as large as in the file, but
// with 16 rows interleaved, so that one vector register holds four consecutive inputs of 16
// outputs. Written by pack_weight, read by linear_isa.cc.
//
// A *group* is 16 rows; a *cell* is 32 columns of a group. Group after group, cell after cell:
//   super scales  K formats, before every 8 cells: float16 d[16], then float16 dmin[16] (not in
//                 Q6_K)
//   scales        float16 d[16], then float16 m[16] where the format has a minimum; in K formats
//                 uint8 scale[16] and uint8 min[16]; in Q6_K int8 scale[16] of columns 0-15, then
//                 int8 scale[16] of columns 16-31
//   high bits     Q5: 64 bytes, byte 4 r + j: bit i belongs to row r, column 4 i + j; Q6: two times
//                 64 bytes, the first for columns 0-15: bits 2 i and 2 i + 1 belong to column
//                 4 i + j
//   low bits      4 times 64 bytes, byte 4 r + j of the i-th: low nibble column 4 i + j, high
//                 nibble column 16 + 4 i + j; Q8_0: 8 times 64 bytes, one signed byte a column
// Rows beyond the last are zero in every field.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace baton {

constexpr int kGroupRows = 16;
constexpr int kCellCols = 32;

struct PackedLayout {
  int header_bytes;  // before every 8 cells
  int scale_bytes;   // the rest: of one cell
  int high_bytes;
  int low_bytes;
};

static constexpr PackedLayout packed_layout(Dtype dtype) {
  switch (dtype) {
    case Dtype::kQ4_0:
      return {0, 32, 0, 256};
    case Dtype::kQ4_1:
      return {0, 64, 0, 256};
    case Dtype::kQ5_0:
      return {0, 32, 64, 256};
    case Dtype::kQ5_1:
      return {0, 64, 64, 256};
    case Dtype::kQ8_0:
      return {0, 32, 0, 512};
    case Dtype::kQ4_K:
      return {64, 32, 0, 256};
    case Dtype::kQ5_K:
      return {64, 32, 64, 256};
    case Dtype::kQ6_K:
      return {32, 32, 128, 256};
    default:
      return {0, 0, 0, 0};  // float types are not packed
  }
}

static constexpr int cell_bytes(const PackedLayout& layout) {
  return layout.scale_bytes + layout.high_bytes + layout.low_bytes;
}

static constexpr int64_t group_bytes(const PackedLayout& layout, int64_t cols) {
  const int64_t cells = cols / kCellCols;
  return cells * cell_bytes(layout) + cells / 8 * layout.header_bytes;
}

// 32 inputs of one token, quantised: x ~ scale * q. The sums of q serve the weights' minimum and
// offset terms; they are whole numbers. Token tiles (token_tile in linear_isa.cc) are interleaved:
// [tile][cell][token of the tile].
struct ActivationBlock {
  int8_t q[kCellCols];
  float scale;
  float sum;
  float half_sum[2];  // of q[0, 16) and q[16, 32)
};

// Packs row-major GGUF blocks [rows, cols] into groups [group_begin, group_end) of `packed`.
// REQUIRES: a quantised dtype, cols a multiple of its block size.
void pack_weight(Dtype dtype, const void* data, int64_t rows, int64_t cols, int64_t group_begin,
                 int64_t group_end, uint8_t* packed);

}  // namespace baton
