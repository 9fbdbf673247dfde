// Where things lie in the shared memory of a prefill attention CTA, and the items it computes.
// Device code only.
#pragma once

#include "kernels/attention/attention_tile.cuh"
#include "kernels/cuda/pipeline.cuh"

namespace baton {

inline constexpr int32_t kPrefillThreads = 384;
inline constexpr int32_t kWarpgroupRows = 64;  // of a warpgroup
inline constexpr int32_t kWarpgroupThreads = 128;
inline constexpr int32_t kQLoaders = 96;

// Columns of head_dim lie in blocks of 64, each a swizzled tile of its own. The last block of sizes
// 80 and 96 is not full: copies fill it up with zeros, and no product reads them.
template <int kDim>
struct PrefillLayout {
  static constexpr int kTile = kDim > 128 ? 64 : 128;  // keys at a time
  static constexpr int kBlocks = (kDim + 63) / 64;
  static constexpr int kBlockBytes = kTile * 128;
  static constexpr int kTileBytes = kBlocks * kBlockBytes;
  static constexpr int kQBlockBytes = kWarpgroupRows * 128;
  static constexpr int kQBytes = kBlocks * kQBlockBytes;  // of a warpgroup
  static constexpr int kQSlots = kDim > 128 ? 1 : 2;      // items whose q there is room for
  static constexpr int kStages = kDim == 64 ? 4 : 2;
  static constexpr int kKeysAt = kQSlots * 2 * kQBytes;
  static constexpr int kValuesAt = kKeysAt + kStages * kTileBytes;
  // Barriers: full and empty of each stage of K, then of V, then of the two slots for items, then
  // of those for their q.
  static constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes;
  static constexpr int kItemsAt = kBarriersAt + 16 * (2 * kStages + 4);
  static constexpr int kSharedBytes = kItemsAt + 2 * 64 + 1024;  // the base is aligned by hand
  static_assert(kSharedBytes <= 227 * 1024);
};

struct PrefillParams {
  AttentionParams attention;
  int32_t box_tokens;  // of a copy: divides the page and the tile
};

// The rows of an item and the keys they see.
struct PrefillItem {
  AttentionSequence sequence;
  int32_t row_begin, rows, kv_head;
  int32_t first_key, last_key;

  // Item `index` of the plan; one of no rows behind the last.
  static __device__ PrefillItem open(const AttentionParams& p, int32_t index) {
    PrefillItem item = {};
    if (index >= p.plan.counts[1] * p.num_kv_heads) return item;
    const PrefillWork work = p.plan.prefill_work[index / p.num_kv_heads];
    item.sequence = p.sequences[work.sequence];
    item.kv_head = index % p.num_kv_heads;
    item.row_begin = work.row_begin;
    item.rows = min(kPrefillRows, item.sequence.num_tokens * p.group - work.row_begin);
    item.first_key = p.window > 0 ? max(0, item.position_of(p, 0) - p.window + 1) : 0;
    item.last_key = item.position_of(p, item.rows - 1);
    return item;
  }
  __device__ int32_t position_of(const AttentionParams& p, int32_t row) const {
    return sequence.first_pos + (row_begin + row) / p.group;
  }
  __device__ int32_t tile_begin(int32_t tile) const { return first_key / tile; }
  __device__ int32_t tile_end(int32_t tile) const { return last_key / tile + 1; }
  // The element of q (or y) where a row's head begins.
  __device__ int64_t element(const AttentionParams& p, int32_t row, int64_t stride,
                             int32_t dim) const {
    const int32_t token = (row_begin + row) / p.group, head = (row_begin + row) % p.group;
    return (sequence.row + token) * stride + (kv_head * p.group + head) * dim;
  }
};

template <int kDim>
struct PrefillShared {
  using Layout = PrefillLayout<kDim>;
  uint32_t base;
  // Where the q of an item lies, and the parity of its barriers.
  struct QPlace {
    int32_t slot;
    uint32_t parity;
  };
  static __device__ QPlace q_place(const RingPosition<2>& items) {
    if constexpr (Layout::kQSlots == 2) return {items.stage, items.parity};
    return {0, static_cast<uint32_t>(items.stage)};
  }
  __device__ uint32_t q(int32_t slot, int32_t warpgroup) const {
    return base + (2 * slot + warpgroup) * Layout::kQBytes;
  }
  __device__ uint32_t keys(int32_t stage) const {
    return base + Layout::kKeysAt + stage * Layout::kTileBytes;
  }
  __device__ uint32_t values(int32_t stage) const {
    return base + Layout::kValuesAt + stage * Layout::kTileBytes;
  }
  __device__ uint32_t keys_full(int32_t stage) const {
    return base + Layout::kBarriersAt + 16 * stage;
  }
  __device__ uint32_t values_full(int32_t stage) const {
    return keys_full(Layout::kStages + stage);
  }
  __device__ uint32_t item_full(int32_t slot) const {
    return keys_full(2 * Layout::kStages + slot);
  }
  __device__ uint32_t q_full(int32_t slot) const { return item_full(2 + slot); }
  __device__ PrefillItem* item(int32_t slot) const {
    return static_cast<PrefillItem*>(__cvta_shared_to_generic(base + Layout::kItemsAt + 64 * slot));
  }
  // Waits for the next item and makes its slot free again.
  __device__ PrefillItem take_item(const RingPosition<2>& items) const {
    const uint32_t full = item_full(items.stage);
    barrier_wait(full, items.parity);
    const PrefillItem taken = *item(items.stage);
    barrier_arrive(empty(full));
    return taken;
  }
  static __device__ uint32_t empty(uint32_t full) { return full + 8; }
};

}  // namespace baton
