// Compiled once per ISA: x W^T for float weights, read where they lie. Each output element is 16
// partial sums (column mod 16) added up in one fixed tree, whatever the tile.
#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {
namespace {

template <Dtype kDtype>
constexpr int kElemBytes = kDtype == Dtype::kF32 ? 4 : 2;

template <Dtype kDtype>
BATON_INLINE F32x16 load_weights(const uint8_t* p) {
  if constexpr (kDtype == Dtype::kF32) return load_f32(p);
  if constexpr (kDtype == Dtype::kF16) return load_f16(p);
  if constexpr (kDtype == Dtype::kBF16) return load_bf16(p);
}

template <Dtype kDtype>
BATON_INLINE F32x16 load_weights_first(const uint8_t* p, int n) {
  uint8_t padded[64] = {};
  __builtin_memcpy(padded, p, n * kElemBytes<kDtype>);
  return load_weights<kDtype>(padded);
}

template <Dtype kDtype, int kRows, int kTokens>
[[gnu::noinline]] void multiply(const LinearJob& job, int64_t row, int32_t token) {
  const int64_t row_bytes = job.cols * kElemBytes<kDtype>;
  const uint8_t* w = job.weight + row * row_bytes;
  const float* x = job.x + token * job.cols;
  F32x16 sum[kRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) sum[r][t] = zero();
  }
  const auto step = [&](const F32x16(&ws)[kRows], const F32x16(&xs)[kTokens]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) sum[r][t] = fma(ws[r], xs[t], sum[r][t]);
    }
  };
  const int64_t whole = job.cols / 16 * 16;
  for (int64_t k = 0; k < whole; k += 16) {
    F32x16 ws[kRows], xs[kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      ws[r] = load_weights<kDtype>(w + r * row_bytes + k * kElemBytes<kDtype>);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) xs[t] = load(x + t * job.cols + k);
    step(ws, xs);
  }
  if (const int rest = static_cast<int>(job.cols - whole); rest > 0) {
    F32x16 ws[kRows], xs[kTokens];
    for (int r = 0; r < kRows; ++r) {
      ws[r] = load_weights_first<kDtype>(w + r * row_bytes + whole * kElemBytes<kDtype>, rest);
    }
    for (int t = 0; t < kTokens; ++t) xs[t] = load_first(x + t * job.cols + whole, rest);
    step(ws, xs);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      float* y = job.y + (token + t) * job.y_stride + row + r;
      float value = sum_lanes(sum[r][t]);
      if (job.bias != nullptr) value += job.bias[row + r];
      *y = job.accumulate ? *y + value : value;
    }
  }
}

template <Dtype kDtype, int kRows>
void multiply_rows(const LinearJob& job, int64_t row, const LinearTile& tile) {
  int32_t token = tile.token_begin;
  for (; token + kFloatTileTokens <= tile.token_end; token += kFloatTileTokens) {
    multiply<kDtype, kRows, kFloatTileTokens>(job, row, token);
  }
  for (; token < tile.token_end; ++token) multiply<kDtype, kRows, 1>(job, row, token);
}

template <Dtype kDtype>
void multiply_tile(const LinearJob& job, const LinearTile& tile) {
  int64_t row = tile.row_begin;
  for (; row + kFloatTileRows <= tile.row_end; row += kFloatTileRows) {
    multiply_rows<kDtype, kFloatTileRows>(job, row, tile);
  }
  for (; row < tile.row_end; ++row) multiply_rows<kDtype, 1>(job, row, tile);
}

}  // namespace

void linear_float(const LinearJob& job, const LinearTile& tile) {
  switch (job.dtype) {
    case Dtype::kF32:
      return multiply_tile<Dtype::kF32>(job, tile);
    case Dtype::kF16:
      return multiply_tile<Dtype::kF16>(job, tile);
    case Dtype::kBF16:
      return multiply_tile<Dtype::kBF16>(job, tile);
    default:
      return;  // quantised dtypes go to linear_quantized
  }
}

}  // namespace baton::BATON_ISA
