// The warps that feed a Hopper prefill CTA. Device code only.
#pragma once

#include "kernels/attention/attention_wgmma.cuh"
#include "kernels/attention/prefill_hopper_layout.cuh"

namespace baton {

template <int kDim>
struct HopperProducer {
  using Layout = HopperLayout<kDim>;
  const HopperParams& params;
  const CUtensorMap& map;
  const HopperShared<kDim> shared;
  const int32_t lane;
  RingPosition<Layout::kStages> ring = {0, 1};  // a fresh barrier lets the opposite parity pass
  RingPosition<2> items = {0, 1};

  __device__ void run() {
    const AttentionParams& p = params.attention;
    const int32_t total = p.plan.counts[1] * p.num_kv_heads;
    int32_t item = blockIdx.x;
    while (item < total) {
      int32_t next = 0;
      if (lane == 0) next = atomicAdd(&p.plan.queues[2], 1) + gridDim.x;
      announce(item);
      const HopperItem work(p, item);
      for (int32_t tile = work.tile_begin(); tile < work.tile_end(); ++tile) {
        copy_tile(work, tile * kHopperTile);
      }
      item = __shfl_sync(~0u, next, 0);
    }
    announce(-1);
    let_next_kernel_start();
    if (lane == 0 && atomicAdd(&p.plan.queues[3], 1) == static_cast<int32_t>(gridDim.x) - 1) {
      p.plan.queues[2] = 0;  // nobody draws any more
      p.plan.queues[3] = 0;
    }
  }

  __device__ void announce(int32_t item) {
    const uint32_t full = shared.item_full(items.stage);
    barrier_wait(shared.empty(full), items.parity);
    if (lane == 0) {
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared.item(items.stage)), "r"(item) : "memory");
      barrier_arrive(full);
    }
    items.advance();
  }

  // A lane copies a box: of half a head's columns, box_tokens keys.
  __device__ void copy_tile(const HopperItem& work, int32_t key_begin) {
    const AttentionParams& p = params.attention;
    const int32_t boxes = kHopperTile / params.box_tokens;
    const int32_t half = lane / boxes, in_tile = lane % boxes * params.box_tokens;
    const int32_t key = key_begin + in_tile;
    // Page -1 lies outside the tensor: zeros. Pages that have left the window are -1 too.
    const bool seen =
        half < Layout::kHalves && key <= work.last_key && key + params.box_tokens > work.first_key;
    const int32_t page = seen ? work.sequence.block_table[key / p.page_tokens] : -1;
    const uint32_t offset = half * Layout::kHalfBytes + in_tile * 128;
    for (int32_t side = 0; side < 2; ++side) {
      const uint32_t full =
          side == 0 ? shared.keys_full(ring.stage) : shared.values_full(ring.stage);
      const uint32_t to = side == 0 ? shared.keys(ring.stage) : shared.values(ring.stage);
      barrier_wait(shared.empty(full), ring.parity);
      if (lane == 0) barrier_arrive_expect(full, Layout::kTileBytes);
      __syncwarp();
      if (half < Layout::kHalves) {
        tensor_copy(to + offset, map, full, half * 64, key % p.page_tokens,
                    side * p.num_kv_heads + work.kv_head, page);
      }
    }
    ring.advance();
  }
};

// Three warps beside the producer bring q of the next item while this one is computed: the rows of
// a group lie where no plain tensor copy could find them.
template <int kDim>
struct HopperQLoader {
  using Layout = HopperLayout<kDim>;
  const AttentionParams& p;
  const HopperShared<kDim> shared;
  const int32_t thread;

  __device__ void run() {
    RingPosition<2> items;
    while (true) {
      const int32_t item = shared.take_item(items);
      if (item < 0) return;
      barrier_wait(shared.empty(shared.q_full(items.stage)), items.parity ^ 1);
      load(HopperItem(p, item), items.stage);
      barrier_arrive(shared.q_full(items.stage));
      items.advance();
    }
  }

  __device__ void load(const HopperItem& item, int32_t slot) {
    constexpr int kChunks = kDim / 8;
    for (int32_t i = thread; i < kPrefillRows * kChunks; i += kQLoaders) {
      const int32_t r = i / kChunks, chunk = i % kChunks;
      const bool wanted = r < item.rows;
      const uint32_t to = shared.q(slot, r / kGroupRows) + chunk / 8 * Layout::kQHalfBytes +
                          r % kGroupRows * 128 + ((chunk % 8) ^ (r % 8)) * 16;
      copy_or_zero(to, p.q + (wanted ? item.element(p, r, p.q_stride, kDim) + chunk * 8 : 0),
                   wanted);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_async_proxy();
  }
};

}  // namespace baton
