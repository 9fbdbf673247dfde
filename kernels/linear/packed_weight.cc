#include "kernels/linear/packed_weight.h"

#include <algorithm>
#include <cstring>

namespace baton {
namespace {

// One row's 32 columns of a file block, bit fields taken apart.
struct RowCell {
  uint8_t q[kCellCols] = {};  // as stored; Q8_0: the signed byte
  uint8_t scale[4] = {};      // d and m as float16; in K formats the two small numbers come first
  uint8_t header[4] = {};     // K formats: d, dmin
};

void read_4_5(const uint8_t* block, bool has_min, bool has_high, RowCell& cell) {
  const int scale_bytes = has_min ? 4 : 2;
  std::memcpy(cell.scale, block, scale_bytes);
  const uint8_t* p = block + scale_bytes;
  uint32_t high = 0;
  if (has_high) {
    std::memcpy(&high, p, sizeof(high));
    p += sizeof(high);
  }
  for (int i = 0; i < 16; ++i) {
    cell.q[i] = static_cast<uint8_t>((p[i] & 15) | (high >> i & 1) << 4);
    cell.q[i + 16] = static_cast<uint8_t>(p[i] >> 4 | (high >> (i + 16) & 1) << 4);
  }
}

void read_k(const uint8_t* block, bool has_high, int sub, RowCell& cell) {
  std::memcpy(cell.header, block, 4);
  const KScale s = k_scale(block + 4, sub);
  cell.scale[0] = static_cast<uint8_t>(s.scale);
  cell.scale[1] = static_cast<uint8_t>(s.min);
  const uint8_t* high = block + 16;
  const uint8_t* low = high + (has_high ? 32 : 0) + sub / 2 * 32;
  for (int i = 0; i < kCellCols; ++i) {
    const int nibble = sub % 2 == 0 ? low[i] & 15 : low[i] >> 4;
    const int high_bit = has_high ? high[i] >> sub & 1 : 0;
    cell.q[i] = static_cast<uint8_t>(nibble | high_bit << 4);
  }
}

void read_q6_k(const uint8_t* block, int sub, RowCell& cell) {
  std::memcpy(cell.header, block + 208, 2);
  cell.scale[0] = block[192 + 2 * sub];
  cell.scale[1] = block[192 + 2 * sub + 1];
  for (int i = 0; i < kCellCols; ++i) {
    cell.q[i] = static_cast<uint8_t>(q6_k_value(block, sub * kCellCols + i));
  }
}

RowCell read_row_cell(Dtype dtype, const uint8_t* row, int64_t index) {
  RowCell cell;
  const DtypeInfo& info = dtype_info(dtype);
  const int subs = info.block_elems / kCellCols;
  const uint8_t* block = row + index / subs * info.block_bytes;
  const int sub = static_cast<int>(index % subs);
  switch (dtype) {
    case Dtype::kQ4_0:
      read_4_5(block, false, false, cell);
      break;
    case Dtype::kQ4_1:
      read_4_5(block, true, false, cell);
      break;
    case Dtype::kQ5_0:
      read_4_5(block, false, true, cell);
      break;
    case Dtype::kQ5_1:
      read_4_5(block, true, true, cell);
      break;
    case Dtype::kQ8_0:
      std::memcpy(cell.scale, block, 2);
      std::memcpy(cell.q, block + 2, kCellCols);
      break;
    case Dtype::kQ4_K:
      read_k(block, false, sub, cell);
      break;
    case Dtype::kQ5_K:
      read_k(block, true, sub, cell);
      break;
    case Dtype::kQ6_K:
      read_q6_k(block, sub, cell);
      break;
    default:
      break;
  }
  return cell;
}

void write_scales(const RowCell& cell, const PackedLayout& layout, int r, uint8_t* dst) {
  if (layout.header_bytes > 0) {
    dst[r] = cell.scale[0];
    dst[kGroupRows + r] = cell.scale[1];
    return;
  }
  std::memcpy(dst + 2 * r, cell.scale, 2);
  if (layout.scale_bytes == 64) std::memcpy(dst + 2 * (kGroupRows + r), cell.scale + 2, 2);
}

void write_quants(const RowCell& cell, const PackedLayout& layout, int r, uint8_t* high,
                  uint8_t* low) {
  for (int c = 0; c < kCellCols; ++c) {
    const int i = c / 4, lane = 4 * r + c % 4;
    if (layout.low_bytes == 512) {
      low[64 * i + lane] = cell.q[c];
      continue;
    }
    const int nibble_shift = i < 4 ? 0 : 4;
    low[64 * (i % 4) + lane] |= static_cast<uint8_t>((cell.q[c] & 15) << nibble_shift);
    const int high_bits = cell.q[c] >> 4;
    if (layout.high_bytes == 64) high[lane] |= static_cast<uint8_t>(high_bits << i);
    if (layout.high_bytes == 128) {
      high[64 * (i / 4) + lane] |= static_cast<uint8_t>(high_bits << 2 * (i % 4));
    }
  }
}

}  // namespace

void pack_weight(Dtype dtype, const void* data, int64_t rows, int64_t cols, int64_t group_begin,
                 int64_t group_end, uint8_t* packed) {
  const PackedLayout layout = packed_layout(dtype);
  const int64_t bytes = group_bytes(layout, cols);
  const int64_t row_bytes = dtype_bytes(dtype, cols);
  const int64_t cells = cols / kCellCols;
  std::memset(packed + group_begin * bytes, 0, (group_end - group_begin) * bytes);
  for (int64_t group = group_begin; group < group_end; ++group) {
    const int rows_here =
        static_cast<int>(std::min<int64_t>(kGroupRows, rows - group * kGroupRows));
    const auto* source = static_cast<const uint8_t*>(data) + group * kGroupRows * row_bytes;
    uint8_t* dst = packed + group * bytes;
    for (int64_t index = 0; index < cells; ++index, dst += cell_bytes(layout)) {
      uint8_t* header = dst;
      const bool begins_super = layout.header_bytes > 0 && index % 8 == 0;
      if (begins_super) dst += layout.header_bytes;
      for (int r = 0; r < rows_here; ++r) {
        const RowCell cell = read_row_cell(dtype, source + r * row_bytes, index);
        for (int b = 0; begins_super && b < layout.header_bytes; b += 32) {
          std::memcpy(header + b + 2 * r, cell.header + b / 16, 2);
        }
        write_scales(cell, layout, r, dst);
        write_quants(cell, layout, r, dst + layout.scale_bytes,
                     dst + layout.scale_bytes + layout.high_bytes);
      }
    }
  }
}

}  // namespace baton
