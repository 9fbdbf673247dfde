// Compiled once per ISA: attention of one tile of query rows over the keys of its sequence, 64 keys
// at a time, with a running maximum and sum (online softmax, Milakov & Gimelshein 2018; tiled as in
// FlashAttention). The blocks lie at absolute positions and every sum runs in a fixed order, so a
// row's result does not depend on its tile.
#include "kernels/attention/attention_block.h"

namespace baton::BATON_ISA {
namespace {

Work lay_out(const AttentionArgs<float>& args, const AttentionTile& tile, float* scratch) {
  Work w = {args, args.batch.sequences[tile.sequence], tile};
  w.group = args.num_heads / args.kv.num_kv_heads;
  w.dim = padded_dim(args.kv.head_dim);
  w.rows = (tile.token_end - tile.token_begin) * w.group;
  w.keys = scratch;
  w.values = w.keys + w.dim * kBlockKeys;
  w.scores = w.values + w.dim * kBlockKeys;
  w.q = w.scores + kAttentionRows * kBlockKeys;
  w.out = w.q + w.rows * w.dim;
  w.max = w.out + w.rows * w.dim;
  w.sum = w.max + w.rows;
  return w;
}

void start(const Work& w) {
  for (int32_t row = 0; row < w.rows; ++row) {
    const float* q = w.args.q + w.q_offset(row, w.args.q_stride);
    for (int32_t d = 0; d < w.dim; d += 16) {
      store(w.q + row * w.dim + d, load_first(q + d, w.lanes(d)) * broadcast(w.args.scale));
      store(w.out + row * w.dim + d, zero());
    }
    w.max[row] = kMinusInfinity;
    w.sum[row] = 0.0f;
  }
}

// Turns a row's scores into weights exp(score - max) and updates its maximum and sum. Returns the
// factor for what was summed before.
float soften(const Work& w, int32_t row, float* scores, int32_t block_pos) {
  const int32_t first = w.first_visible(row) - block_pos, last = w.position(row) - block_pos;
  if (w.args.soft_cap > 0) {
    const F32x16 cap = broadcast(w.args.soft_cap), inverse = broadcast(1.0f / w.args.soft_cap);
    for (int v = 0; v < kBlockKeys; v += 16) {
      store(scores + v, cap * tanh(load(scores + v) * inverse));
    }
  }
  for (int32_t i = 0; i < first && i < kBlockKeys; ++i) scores[i] = kMinusInfinity;
  for (int32_t i = last < 0 ? 0 : last + 1; i < kBlockKeys; ++i) scores[i] = kMinusInfinity;
  F32x16 s[kKeyVecs];
  for (int v = 0; v < kKeyVecs; ++v) s[v] = load(scores + 16 * v);
  const float block_max = max_lanes(max(max(s[0], s[1]), max(s[2], s[3])));
  const float old_max = w.max[row];
  const float new_max = block_max > old_max ? block_max : old_max;
  if (new_max == kMinusInfinity) {  // nothing visible yet
    for (int v = 0; v < kKeyVecs; ++v) store(scores + 16 * v, zero());
    return 1.0f;
  }
  for (int v = 0; v < kKeyVecs; ++v) {
    s[v] = exp(s[v] - broadcast(new_max));
    store(scores + 16 * v, s[v]);
  }
  float factor = 1.0f;  // which exp(0) is too
  if (new_max != old_max) {
    float lanes[16];
    store(lanes, exp(broadcast(old_max - new_max)));
    factor = lanes[0];
    w.max[row] = new_max;
  }
  w.sum[row] = w.sum[row] * factor + sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
  return factor;
}

// out[row + r][d] = out * factor[r] + sum over keys of weight * value.
template <int kRows, int kVecs, typename Block>
BATON_INLINE void add_values(const Work& w, const Block& block, int32_t row, int32_t d,
                             const float* factors, int32_t key_begin, int32_t key_end) {
  F32x16 acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = load(w.out + (row + r) * w.dim + d + 16 * v) * broadcast(factors[r]);
    }
  }
  for (int32_t key = key_begin; key < key_end; ++key) {
    F32x16 value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) value[v] = block.value(w, key, d + 16 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F32x16 weight = broadcast(w.scores[r * kBlockKeys + key]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] = fma(weight, value[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(w.out + (row + r) * w.dim + d + 16 * v, acc[r][v]);
  }
}

template <int kRows, typename Block>
void attend_rows(const Work& w, const Block& block, int32_t row, int32_t block_pos,
                 KeyRange range) {
  const int32_t seen_last = w.position(row + kRows - 1);
  if (seen_last < block_pos) return;  // the block lies beyond what these rows see
  const int32_t key_begin = range.first - block_pos;
  const int32_t key_end = (seen_last < range.last ? seen_last : range.last) - block_pos + 1;
  block.template score<kRows>(w, row);
  float factors[kRows];
  for (int r = 0; r < kRows; ++r) {
    factors[r] = soften(w, row + r, w.scores + r * kBlockKeys, block_pos);
  }
  int32_t d = 0;
  for (; d + 16 * kAttentionVecs <= w.dim; d += 16 * kAttentionVecs) {
    add_values<kRows, kAttentionVecs>(w, block, row, d, factors, key_begin, key_end);
  }
  for (; d < w.dim; d += 16) add_values<kRows, 1>(w, block, row, d, factors, key_begin, key_end);
}

// All rows of a tile that has at most kRows of them, in one pass.
template <int kRows, typename Block>
void attend_few(const Work& w, const Block& block, int32_t block_pos, KeyRange range) {
  if (w.rows == kRows) {
    attend_rows<kRows>(w, block, 0, block_pos, range);
  } else if constexpr (kRows > 1) {
    attend_few<kRows - 1>(w, block, block_pos, range);
  }
}

template <Dtype kDtype>
void attend_block(const Work& w, const PagedBlock<kDtype>& paged, int32_t block_pos,
                  KeyRange range) {
  if (w.rows <= kAttentionRows) return attend_few<kAttentionRows>(w, paged, block_pos, range);
  const ExpandedBlock expanded = expand(w, paged);
  int32_t row = 0;
  for (; row + kAttentionRows <= w.rows; row += kAttentionRows) {
    attend_rows<kAttentionRows>(w, expanded, row, block_pos, range);
  }
  for (; row < w.rows; ++row) attend_rows<1>(w, expanded, row, block_pos, range);
}

template <Dtype kDtype>
void attend(const Work& w) {
  const int32_t first_block = w.first_visible(0) / kBlockKeys;
  const int32_t last_block = w.position(w.rows - 1) / kBlockKeys;
  BlockRows rows[2];  // by parity of the block
  KeyRange range = visible_keys(w, first_block * kBlockKeys);
  find_rows(w, first_block * kBlockKeys, range, rows[first_block % 2]);
  for (int32_t block = first_block; block <= last_block; ++block) {
    const int32_t next_pos = (block + 1) * kBlockKeys;
    const KeyRange next_range = visible_keys(w, next_pos);
    find_rows(w, next_pos, next_range, rows[(block + 1) % 2]);
    const PagedBlock<kDtype> paged = {rows[block % 2], rows[(block + 1) % 2]};
    attend_block<kDtype>(w, paged, block * kBlockKeys, range);
    range = next_range;
  }
}

void finish(const Work& w) {
  const int64_t stride = static_cast<int64_t>(w.args.num_heads) * w.args.kv.head_dim;
  for (int32_t row = 0; row < w.rows; ++row) {
    float* y = w.args.y + w.q_offset(row, stride);
    const float* out = w.out + row * w.dim;
    const F32x16 inverse = broadcast(1.0f / w.sum[row]);
    for (int32_t d = 0; d < w.dim; d += 16) store_first(y + d, load(out + d) * inverse, w.lanes(d));
  }
}

}  // namespace

void attention(const AttentionArgs<float>& args, const AttentionTile& tile, float* scratch) {
  const Work w = lay_out(args, tile, scratch);
  start(w);
  switch (args.kv.dtype) {
    case Dtype::kF16:
      attend<Dtype::kF16>(w);
      break;
    case Dtype::kBF16:
      attend<Dtype::kBF16>(w);
      break;
    default:
      attend<Dtype::kF32>(w);
      break;
  }
  finish(w);
}

}  // namespace baton::BATON_ISA
