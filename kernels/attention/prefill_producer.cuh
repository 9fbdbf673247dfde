// The warps that feed a prefill attention CTA. Device code only.
#pragma once

#include "kernels/attention/prefill_layout.cuh"

namespace baton {

template <int kDim>
struct PrefillProducer {
  using Layout = PrefillLayout<kDim>;
  const PrefillParams& params;
  const CUtensorMap& map;
  const PrefillShared<kDim> shared;
  const int32_t lane;
  RingPosition<Layout::kStages> ring = {0, 1};  // a fresh barrier lets the opposite parity pass
  RingPosition<2> items = {0, 1};

  // Every item is announced while the one before it is still being copied, so that its q is there
  // in time.
  __device__ void run() {
    const AttentionParams& p = params.attention;
    PrefillItem item = PrefillItem::open(p, blockIdx.x);
    announce(item);
    int32_t next = __shfl_sync(~0u, draw(), 0);
    while (item.rows > 0) {
      const int32_t after = draw();
      const PrefillItem following = PrefillItem::open(p, next);
      announce(following);
      copy_tiles(item);
      item = following;
      next = __shfl_sync(~0u, after, 0);
    }
    let_next_kernel_start();
    __threadfence();  // what was drawn last is drawn before the queue is reset
    if (lane == 0 && atomicAdd(&p.plan.queues[3], 1) == static_cast<int32_t>(gridDim.x) - 1) {
      p.plan.queues[2] = 0;  // nobody draws any more
      p.plan.queues[3] = 0;
    }
  }

  // In lane 0.
  __device__ int32_t draw() const {
    return lane == 0 ? atomicAdd(&params.attention.plan.queues[2], 1) + gridDim.x : 0;
  }

  __device__ void announce(const PrefillItem& item) {
    const uint32_t full = shared.item_full(items.stage);
    barrier_wait(shared.empty(full), items.parity);
    if (lane == 0) {
      *shared.item(items.stage) = item;
      barrier_arrive(full);
    }
    items.advance();
  }

  // A lane copies a box: of a block of a head's columns, box_tokens keys.
  __device__ void copy_tiles(const PrefillItem& item) {
    constexpr int kTile = Layout::kTile;
    const int32_t boxes = kTile / params.box_tokens;
    const int32_t block = lane / boxes, in_tile = lane % boxes * params.box_tokens;
    const int32_t end = item.tile_end(kTile) * kTile;
    int32_t key = item.tile_begin(kTile) * kTile + in_tile;
    int32_t page = page_of(item, block, key);
    for (; key < end; key += kTile) {
      const int32_t next_page = page_of(item, block, key + kTile);
      copy_tile(item, block, in_tile, key, page);
      page = next_page;
    }
  }

  // Page -1 lies outside the tensor and gives zeros. Pages that have left the window are -1 too.
  __device__ int32_t page_of(const PrefillItem& item, int32_t block, int32_t key) const {
    const bool seen =
        block < Layout::kBlocks && key <= item.last_key && key + params.box_tokens > item.first_key;
    return seen ? item.sequence.block_table[key / params.attention.page_tokens] : -1;
  }

  __device__ void copy_tile(const PrefillItem& item, int32_t block, int32_t in_tile, int32_t key,
                            int32_t page) {
    const AttentionParams& p = params.attention;
    const uint32_t offset = block * Layout::kBlockBytes + in_tile * 128;
    for (int32_t side = 0; side < 2; ++side) {
      const uint32_t full =
          side == 0 ? shared.keys_full(ring.stage) : shared.values_full(ring.stage);
      const uint32_t to = side == 0 ? shared.keys(ring.stage) : shared.values(ring.stage);
      barrier_wait(shared.empty(full), ring.parity);
      if (lane == 0) barrier_arrive_expect(full, Layout::kTileBytes);
      __syncwarp();
      if (block < Layout::kBlocks) {
        tensor_copy(to + offset, map, full, block * 64, key % p.page_tokens,
                    side * p.num_kv_heads + item.kv_head, page);
      }
    }
    ring.advance();
  }
};

// Three warps beside the producer bring q of the next item while this one is computed, or as soon
// as its scores are, where shared memory holds the q of one item only. The rows of a group lie
// where no plain tensor copy could find them.
template <int kDim>
struct PrefillQLoader {
  using Layout = PrefillLayout<kDim>;
  const AttentionParams& p;
  const PrefillShared<kDim> shared;
  const int32_t thread;

  __device__ void run() {
    RingPosition<2> items;
    while (true) {
      const PrefillItem item = shared.take_item(items);
      if (item.rows == 0) return;
      const auto place = shared.q_place(items);
      const uint32_t full = shared.q_full(place.slot);
      barrier_wait(shared.empty(full), place.parity ^ 1);
      load(item, place.slot);
      barrier_arrive(full);
      items.advance();
    }
  }

  __device__ void load(const PrefillItem& item, int32_t slot) {
    constexpr int kChunks = kDim / 8;
    for (int32_t i = thread; i < kPrefillRows * kChunks; i += kQLoaders) {
      const int32_t r = i / kChunks, chunk = i % kChunks;
      const bool wanted = r < item.rows;
      const uint32_t to = shared.q(slot, r / kWarpgroupRows) + chunk / 8 * Layout::kQBlockBytes +
                          r % kWarpgroupRows * 128 + ((chunk % 8) ^ (r % 8)) * 16;
      copy_or_zero(to, p.q + (wanted ? item.element(p, r, p.q_stride, kDim) + chunk * 8 : 0),
                   wanted);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_async_proxy();
  }
};

}  // namespace baton
