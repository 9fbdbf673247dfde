// Compiled once per ISA: x W^T for packed (quantised) weights. The sum of an output element runs
// over the cells of its row in order, one fused multiply-add after the other, whatever the tile:
// that is what makes a row's result independent of how many tokens are computed together.
#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {
namespace {

// The tile of a token: full tiles first, then one of each power of two that the rest needs.
struct TokenTile {
  int32_t begin, size;
};
BATON_INLINE TokenTile token_tile(int32_t token, int32_t num_tokens) {
  int32_t begin = token / kTokenTile * kTokenTile;
  int32_t size = kTokenTile;
  while (true) {
    while (size > num_tokens - begin) size /= 2;
    if (token < begin + size) return {begin, size};
    begin += size;
  }
}

void quantize_block(const float* x, ActivationBlock& block) {
  const F32x16 lo = load(x), hi = load(x + 16);
  const float largest = max_lanes(max(abs(lo), abs(hi)));
  const F32x16 inverse = broadcast(largest > 0 ? 127.0f / largest : 0.0f);
  const F32x16 sum_lo = to_float(store_int8(block.q, lo * inverse));
  const F32x16 sum_hi = to_float(store_int8(block.q + 16, hi * inverse));
  block.scale = largest / 127.0f;
  block.half_sum[0] = sum_lanes(sum_lo);
  block.half_sum[1] = sum_lanes(sum_hi);
  block.sum = block.half_sum[0] + block.half_sum[1];
}

// Weights of a cell in registers: weight = scale * w + offset, in one part, or in two of 16 columns
// (Q6_K).
struct Cell {
  U8x64 w[8];
  F32x16 scale[2];
  F32x16 offset[2];
};

template <Dtype kDtype>
BATON_INLINE void read_scales(const uint8_t* header, const uint8_t* cell, Cell& c) {
  constexpr bool kHasMin = kDtype == Dtype::kQ4_1 || kDtype == Dtype::kQ5_1;
  if constexpr (kDtype == Dtype::kQ6_K) {
    const F32x16 d = load_f16(header);
    for (int part = 0; part < 2; ++part) {
      c.scale[part] = d * load_i8_as_float(reinterpret_cast<const int8_t*>(cell) + 16 * part);
      c.offset[part] = c.scale[part] * broadcast(-32.0f);
    }
  } else if constexpr (kDtype == Dtype::kQ4_K || kDtype == Dtype::kQ5_K) {
    c.scale[0] = load_f16(header) * load_u8_as_float(cell);
    c.offset[0] = zero() - load_f16(header + 32) * load_u8_as_float(cell + 16);
  } else {
    c.scale[0] = load_f16(cell);
    if constexpr (kHasMin) {
      c.offset[0] = load_f16(cell + 32);
    } else {
      constexpr float kZero = kDtype == Dtype::kQ8_0   ? kInt8Offset
                              : kDtype == Dtype::kQ5_0 ? 16
                                                       : 8;
      c.offset[0] = c.scale[0] * broadcast(-kZero);
    }
  }
}

// Moves the `bits` high bits of columns 4 i .. 4 i + 3, at bit `at` of each byte, to bit 4.
BATON_INLINE U8x64 high_bits(U8x64 high, int at, uint8_t mask) {
  return and_each(at < 4 ? shift_left(high, 4 - at) : shift_right(high, at - 4), mask);
}

template <Dtype kDtype>
BATON_INLINE void read_weights(const uint8_t* cell, Cell& c) {
  constexpr PackedLayout kLayout = packed_layout(kDtype);
  const uint8_t* high = cell + kLayout.scale_bytes;
  const uint8_t* low = high + kLayout.high_bytes;
  if constexpr (kDtype == Dtype::kQ8_0) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) c.w[i] = load_int8(low + 64 * i);
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const U8x64 both = load_bytes(low + 64 * i);
      c.w[i] = and_each(both, 15);
      c.w[i + 4] = and_each(shift_right(both, 4), 15);
    }
  }
  if constexpr (kLayout.high_bytes == 64) {
    const U8x64 bits = load_bytes(high);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) c.w[i] = c.w[i] | high_bits(bits, i, 0x10);
  }
  if constexpr (kLayout.high_bytes == 128) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      c.w[i] = c.w[i] | high_bits(load_bytes(high + 64 * (i / 4)), 2 * (i % 4), 0x30);
    }
  }
}

template <Dtype kDtype>
BATON_INLINE F32x16 accumulate_cell(const Cell& c, const ActivationBlock& x, F32x16 y) {
  constexpr int kParts = kDtype == Dtype::kQ6_K ? 2 : 1;
  F32x16 sum = zero();
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
    I32x16 acc = zero_int();
#pragma GCC unroll 8
    for (int i = part * 8 / kParts; i < (part + 1) * 8 / kParts; ++i) {
      acc = kDtype == Dtype::kQ8_0 ? dot4_int8(acc, c.w[i], x.q + 4 * i)
                                   : dot4(acc, c.w[i], x.q + 4 * i);
    }
    const F32x16 x_sum = broadcast(kParts == 2 ? x.half_sum[part] : x.sum);
    const F32x16 offset = c.offset[part] * x_sum;
    sum = fma(c.scale[part], to_float(acc), part == 0 ? offset : sum + offset);
  }
  return fma(sum, broadcast(x.scale), y);
}

// Adds bias and what is there, and stores the rows of the group that exist.
BATON_INLINE void store_rows(const LinearJob& job, int64_t row, int32_t token, F32x16 sum) {
  const int64_t left = job.rows - row;
  const int count = left < kGroupRows ? static_cast<int>(left) : kGroupRows;
  float* y = job.y + token * job.y_stride + row;
  if (job.bias != nullptr) sum = sum + load_first(job.bias + row, count);
  if (job.accumulate) sum = sum + load_first(y, count);
  store_first(y, sum, count);
}

template <Dtype kDtype, int kTokens>
[[gnu::noinline]] void multiply(const LinearJob& job, int64_t row, int32_t token) {
  constexpr PackedLayout kLayout = packed_layout(kDtype);
  const int64_t cells = job.cols / kCellCols;
  const uint8_t* cell = job.weight + row / kGroupRows * group_bytes(kLayout, job.cols);
  const uint8_t* header = cell;
  const ActivationBlock* x = job.blocks + token * cells;
  F32x16 y[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) y[t] = zero();
  for (int64_t i = 0; i < cells; ++i, cell += cell_bytes(kLayout), x += kTokens) {
    if (kLayout.header_bytes > 0 && i % 8 == 0) {
      header = cell;
      cell += kLayout.header_bytes;
    }
    Cell c;
    read_scales<kDtype>(header, cell, c);
    read_weights<kDtype>(cell, c);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) y[t] = accumulate_cell<kDtype>(c, x[t], y[t]);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) store_rows(job, row, token + t, y[t]);
}

template <Dtype kDtype, int kTokens>
BATON_INLINE void multiply_sized(const LinearJob& job, int64_t row, TokenTile tile) {
  if (tile.size == kTokens) {
    multiply<kDtype, kTokens>(job, row, tile.begin);
  } else if constexpr (kTokens > 1) {
    multiply_sized<kDtype, kTokens / 2>(job, row, tile);
  }
}

template <Dtype kDtype>
void multiply_tile(const LinearJob& job, const LinearTile& tile) {
  for (int64_t row = tile.row_begin; row < tile.row_end; row += kGroupRows) {
    for (int32_t token = tile.token_begin; token < tile.token_end;) {
      const TokenTile tokens = token_tile(token, job.num_tokens);
      multiply_sized<kDtype, kTokenTile>(job, row, tokens);
      token += tokens.size;
    }
  }
}

}  // namespace

void quantize(const float* x, int64_t cols, int32_t num_tokens, int32_t token_begin,
              int32_t token_end, ActivationBlock* blocks) {
  const int64_t cells = cols / kCellCols;
  for (int32_t token = token_begin; token < token_end; ++token) {
    const TokenTile tile = token_tile(token, num_tokens);
    ActivationBlock* out = blocks + tile.begin * cells + (token - tile.begin);
    for (int64_t i = 0; i < cells; ++i) {
      quantize_block(x + token * cols + i * kCellCols, out[i * tile.size]);
    }
  }
}

void linear_quantized(const LinearJob& job, const LinearTile& tile) {
  switch (job.dtype) {
    case Dtype::kQ4_0:
      return multiply_tile<Dtype::kQ4_0>(job, tile);
    case Dtype::kQ4_1:
      return multiply_tile<Dtype::kQ4_1>(job, tile);
    case Dtype::kQ5_0:
      return multiply_tile<Dtype::kQ5_0>(job, tile);
    case Dtype::kQ5_1:
      return multiply_tile<Dtype::kQ5_1>(job, tile);
    case Dtype::kQ8_0:
      return multiply_tile<Dtype::kQ8_0>(job, tile);
    case Dtype::kQ4_K:
      return multiply_tile<Dtype::kQ4_K>(job, tile);
    case Dtype::kQ5_K:
      return multiply_tile<Dtype::kQ5_K>(job, tile);
    case Dtype::kQ6_K:
      return multiply_tile<Dtype::kQ6_K>(job, tile);
    default:
      return;  // float dtypes go to linear_float
  }
}

}  // namespace baton::BATON_ISA
