// A tile of attention at work and its blocks of 64 keys: where they lie in the pages, and how
// scores are taken from them. Included by attention_isa.cc alone, hence compiled once per ISA.
#pragma once

#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {
namespace {

constexpr int kBlockKeys = 64;
constexpr int kKeyVecs = kBlockKeys / 16;
constexpr float kMinusInfinity = -__builtin_inff();

int32_t padded_dim(int32_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

// A tile at work. Query row = (token - token_begin) * group + head of the group.
struct Work {
  const AttentionArgs<float>& args;
  const AttentionSequence& sequence;
  const AttentionTile& tile;
  int32_t group;  // query heads per kv head
  int32_t dim;    // head_dim rounded up to whole vectors; the padding is zero
  int32_t rows;
  float* keys;    // [dim, 64]: the block's keys, transposed
  float* values;  // [64, dim]
  float* q;       // [rows, dim], scaled
  float* out;     // [rows, dim], not yet divided by the sum
  float* max;     // [rows]
  float* sum;     // [rows]
  float* scores;  // [kAttentionRows, 64]

  int32_t position(int32_t row) const {
    return sequence.first_pos + tile.token_begin + row / group;
  }
  // A row sees positions [first_visible, position].
  int32_t first_visible(int32_t row) const {
    const int32_t first = position(row) - args.window + 1;
    return args.window > 0 && first > 0 ? first : 0;
  }
  // Of the 16 elements of a head from d on, those that exist.
  int32_t lanes(int32_t d) const { return args.kv.head_dim - d < 16 ? args.kv.head_dim - d : 16; }
  int64_t q_offset(int32_t row, int64_t stride) const {
    const int64_t token = sequence.row + tile.token_begin + row / group;
    const int64_t head = static_cast<int64_t>(tile.kv_head) * group + row % group;
    return token * stride + head * args.kv.head_dim;
  }
};

template <Dtype kDtype>
constexpr int kElemBytes = kDtype == Dtype::kF32 ? 4 : 2;

template <Dtype kDtype>
BATON_INLINE F32x16 load_kv(const std::byte* p) {
  if constexpr (kDtype == Dtype::kF32) return load_f32(p);
  if constexpr (kDtype == Dtype::kF16) return load_f16(p);
  if constexpr (kDtype == Dtype::kBF16) return load_bf16(p);
}

// Elements [d, d + 16) of a head; zeros beyond head_dim.
template <Dtype kDtype>
BATON_INLINE F32x16 load_kv_at(const std::byte* head, int32_t d, int32_t head_dim) {
  const std::byte* p = head + d * kElemBytes<kDtype>;
  if (d + 16 <= head_dim) [[likely]]
    return load_kv<kDtype>(p);
  std::byte padded[64] = {};
  __builtin_memcpy(padded, p, (head_dim - d) * kElemBytes<kDtype>);
  return load_kv<kDtype>(padded);
}

// The keys of the block at `block_pos` that some row of the tile sees.
struct KeyRange {
  int32_t first, last;  // positions, both included; empty when last < first
};
KeyRange visible_keys(const Work& w, int32_t block_pos) {
  const int32_t first = w.first_visible(0), last = w.position(w.rows - 1);
  const int32_t block_last = block_pos + kBlockKeys - 1;
  return {first > block_pos ? first : block_pos, last < block_last ? last : block_last};
}

// Where the keys and values of a block lie: in pages for the positions of the range, in a row of
// zeros elsewhere, so that memory nobody wrote never meets arithmetic.
struct BlockRows {
  const std::byte* keys[kBlockKeys];
  const std::byte* values[kBlockKeys];
};

void find_rows(const Work& w, int32_t block_pos, KeyRange range, BlockRows& rows) {
  alignas(64) static constexpr std::byte kZeros[kMaxHeadDim * sizeof(float)] = {};
  const PagedLayer& kv = w.args.kv;
  const int64_t row_bytes = kv.head_dim * (kv.dtype == Dtype::kF32 ? 4 : 2);
  for (int32_t i = 0; i < kBlockKeys; ++i) rows.keys[i] = rows.values[i] = kZeros;
  for (int32_t position = range.first; position <= range.last;) {
    const int32_t offset = position % kv.page_tokens;
    const int32_t page = w.sequence.block_table[position / kv.page_tokens];
    const std::byte* key = kv_head_address(kv, page, offset, w.tile.kv_head);
    const std::byte* value = kv_head_address(kv, page, offset, kv.num_kv_heads + w.tile.kv_head);
    for (int32_t o = offset; o < kv.page_tokens && position <= range.last; ++o, ++position) {
      rows.keys[position - block_pos] = key;
      rows.values[position - block_pos] = value;
      key += row_bytes;
      value += row_bytes;
    }
  }
}

// 16 keys by 16 elements, transposed: square[i] is element d + i of the keys. Asks for the same
// piece of the next block, because pages are scattered, which hardware prefetching cannot foresee;
// bit by bit, because a burst of requests would stall.
template <Dtype kDtype>
BATON_INLINE void load_square(const Work& w, const BlockRows& rows, const BlockRows& next,
                              int32_t key, int32_t d, F32x16 (&square)[16]) {
#pragma GCC unroll 16
  for (int32_t i = 0; i < 16; ++i) {
    square[i] = load_kv_at<kDtype>(rows.keys[key + i], d, w.args.kv.head_dim);
    __builtin_prefetch(next.keys[key + i] + d * kElemBytes<kDtype>);
    __builtin_prefetch(next.values[key + i] + d * kElemBytes<kDtype>);
  }
  transpose(square);
}

// A block read straight from its pages, for tiles that read it once.
template <Dtype kDtype>
struct PagedBlock {
  const BlockRows& rows;
  const BlockRows& next;

  // w.scores[r][key] = q[row + r] . key.
  template <int kRows>
  void score(const Work& w, int32_t row) const {
    const float* q = w.q + row * w.dim;
    for (int32_t key = 0; key < kBlockKeys; key += 16) {
      F32x16 acc[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) acc[r] = zero();
      for (int32_t d = 0; d < w.dim; d += 16) {
        F32x16 square[16];
        load_square<kDtype>(w, rows, next, key, d, square);
#pragma GCC unroll 16
        for (int32_t i = 0; i < 16; ++i) {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            acc[r] = fma(broadcast(q[r * w.dim + d + i]), square[i], acc[r]);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) store(w.scores + r * kBlockKeys + key, acc[r]);
    }
  }

  [[gnu::always_inline]] F32x16 value(const Work& w, int32_t key, int32_t d) const {
    return load_kv_at<kDtype>(rows.values[key], d, w.args.kv.head_dim);
  }
};

// A block expanded into the scratch, for tiles of many rows.
struct ExpandedBlock {
  template <int kRows>
  void score(const Work& w, int32_t row) const {
    for (int32_t key = 0; key < kBlockKeys; key += 16 * kAttentionVecs) {
      score_keys<kRows>(w, row, key);
    }
  }

  // The same sums in the same order as PagedBlock, more of them at a time.
  template <int kRows>
  [[gnu::always_inline]] void score_keys(const Work& w, int32_t row, int32_t key) const {
    F32x16 acc[kRows][kAttentionVecs];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kAttentionVecs; ++v) acc[r][v] = zero();
    }
    const float* q = w.q + row * w.dim;
    for (int32_t d = 0; d < w.dim; ++d) {
      const float* keys = w.keys + d * kBlockKeys + key;
      F32x16 k[kAttentionVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kAttentionVecs; ++v) k[v] = load(keys + 16 * v);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32x16 q_d = broadcast(q[r * w.dim + d]);
#pragma GCC unroll 4
        for (int v = 0; v < kAttentionVecs; ++v) acc[r][v] = fma(q_d, k[v], acc[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kAttentionVecs; ++v) {
        store(w.scores + r * kBlockKeys + key + 16 * v, acc[r][v]);
      }
    }
  }

  [[gnu::always_inline]] F32x16 value(const Work& w, int32_t key, int32_t d) const {
    return load(w.values + key * w.dim + d);
  }
};

template <Dtype kDtype>
ExpandedBlock expand(const Work& w, const PagedBlock<kDtype>& block) {
  for (int32_t d = 0; d < w.dim; d += 16) {
    for (int32_t key = 0; key < kBlockKeys; key += 16) {
      F32x16 square[16];
      load_square<kDtype>(w, block.rows, block.next, key, d, square);
#pragma GCC unroll 16
      for (int32_t i = 0; i < 16; ++i) store(w.keys + (d + i) * kBlockKeys + key, square[i]);
    }
  }
  for (int32_t key = 0; key < kBlockKeys; ++key) {
    for (int32_t d = 0; d < w.dim; d += 16)
      store(w.values + key * w.dim + d, block.value(w, key, d));
  }
  return {};
}

}  // namespace
}  // namespace baton::BATON_ISA
