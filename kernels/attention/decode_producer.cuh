// The warp that feeds a decode attention CTA: draws items, copies their tiles into the ring of
// stages. Device code only.
#pragma once

#include "kernels/attention/attention_pipeline.cuh"
#include "kernels/attention/attention_tile.cuh"
#include "kernels/attention/decode_layout.cuh"

namespace baton {

template <int kDim>
struct DecodeProducer {
  using Layout = DecodeLayout<kDim>;
  const AttentionParams& p;
  const DecodeMaps& maps;
  unsigned char* const shared;
  const int32_t lane;
  RingPosition<Layout::kStages> ring = {0, 1};    // a fresh barrier lets the opposite parity pass
  RingPosition<Layout::kStages> q_ring = {0, 0};  // where q was last sent
  int32_t tiles_since_q = Layout::kStages;
  int32_t tile_info = 0;

  __device__ uint32_t full() const {
    return shared_address(shared + Layout::kBarriersAt) + 16 * ring.stage;
  }
  __device__ uint32_t empty() const { return full() + 8; }

  // Work lists and block tables come by copies that precede the step's first kernel, so the first
  // item is opened while the kernel before this one still runs.
  __device__ void run() {
    const int32_t first_item = static_cast<int32_t>(blockIdx.x);
    Item opened = open(first_item);
    const int32_t total = p.plan.counts[0] * p.num_kv_heads;
    wait_for_previous_kernels();
    for (int32_t item = first_item; item < total;) {
      int32_t next = 0;
      if (lane == 0) next = atomicAdd(&p.plan.queues[0], 1) + gridDim.x;
      produce(opened);
      item = __shfl_sync(~0u, next, 0);
      if (item < total) opened = open(item);
    }
    let_next_kernel_start();
    begin({.flags = kDecodeStop}, 0);
    if (lane == 0 && atomicAdd(&p.plan.queues[1], 1) == static_cast<int32_t>(gridDim.x) - 1) {
      p.plan.queues[0] = 0;  // nobody draws any more
      p.plan.queues[1] = 0;
    }
  }

  // Waits for the stage, fills in its info and announces what will be copied.
  __device__ void begin(const DecodeStageInfo& stage, uint32_t bytes) {
    barrier_wait(empty(), ring.parity);
    if (lane == 0) {
      reinterpret_cast<DecodeStageInfo*>(shared + Layout::kInfoAt)[tile_info] = stage;
      if (bytes > 0) {
        barrier_arrive_expect(full(), bytes);
      } else {
        barrier_arrive(full());
      }
    }
    if (++tile_info == Layout::kInfos) tile_info = 0;
    __syncwarp();
  }

  // An item and what its first tile needs.
  struct Item {
    DecodeWork work;
    DecodeStageInfo stage;
    int32_t begin_key, end_key;
    int32_t page;
  };

  __device__ Item open(int32_t item) const {
    Item opened = {};
    if (item / p.num_kv_heads >= p.plan.counts[0]) return opened;
    opened.work = p.plan.decode_work[item / p.num_kv_heads];
    const DecodeWork& work = opened.work;
    DecodeStageInfo& stage = opened.stage;
    stage = {.flags = kDecodeItemBegin,
             .position = work.position,
             .first_head = work.first_head,
             .rows = work.num_rows,
             .y_row = work.row,
             .kv_head = item % p.num_kv_heads,
             .slot = work.slot,
             .num_units = work.num_units,
             .part_units = work.unit_end - work.unit_begin};
    if (work.unit_tokens == 0) return opened;
    stage.last = work.position + (work.first_head + work.num_rows - 1) / p.group;
    stage.first = p.window > 0 ? max(0, work.position - p.window + 1) : 0;
    opened.begin_key =
        max(stage.first, work.unit_begin * work.unit_tokens) / kDecodeTile * kDecodeTile;
    opened.end_key = min(stage.last + 1, work.unit_end * work.unit_tokens);
    opened.page = page_of(opened, opened.begin_key);
    return opened;
  }

  __device__ void produce(const Item& opened) {
    DecodeStageInfo stage = opened.stage;
    const int32_t unit_tokens = opened.work.unit_tokens;
    if (unit_tokens == 0) {
      stage.flags |= kDecodeItemEnd | kDecodeNoKeys;
      begin(stage, 0);
      ring.advance();
      ++tiles_since_q;
      return;
    }
    int32_t page = opened.page;
    for (int32_t key = opened.begin_key; key < opened.end_key; key += kDecodeTile) {
      const int32_t next_key = key + kDecodeTile;
      const bool is_end = next_key >= opened.end_key;
      const int32_t next_page = is_end ? -1 : page_of(opened, next_key);
      stage.key_begin = key;
      stage.unit = key / unit_tokens - opened.work.first_unit;
      if (is_end || next_key % unit_tokens == 0) stage.flags |= kDecodeUnitEnd;
      if (is_end) stage.flags |= kDecodeItemEnd;
      copy_tile(stage, page);
      stage.flags = 0;
      page = next_page;
    }
  }

  // Keys of a copy: a box of a tensor, or a piece. A sequence's ends are read in small boxes.
  __device__ int32_t box_tokens(const DecodeStageInfo& stage, int32_t tile) const {
    if constexpr (!Layout::kSwizzled) return 8;
    const bool whole = tile >= stage.first && tile + kDecodeTile - 1 <= stage.last;
    return whole ? maps.box_tokens : kDecodeEndBox;
  }

  // The page of this lane's copy; -1 where no row sees any of it.
  __device__ int32_t page_of(const Item& item, int32_t tile) const {
    const int32_t tokens = box_tokens(item.stage, tile);
    const int32_t key = tile + lane % (kDecodeTile / tokens) * tokens;
    if (key > item.stage.last || key + tokens - 1 < item.stage.first) return -1;
    return item.work.block_table[key / p.page_tokens];
  }

  // There is one place for q: its last item must have been begun by the consumers.
  __device__ void await_q_place() {
    if (tiles_since_q < Layout::kStages) {
      const uint32_t back = q_ring.stage;
      barrier_wait(shared_address(shared + Layout::kBarriersAt) + 16 * back + 8, q_ring.parity ^ 1);
    }
    tiles_since_q = 0;
    q_ring = ring;
  }

  // Lane i copies box (or piece) i of K's first half, then of its other halves, then of V.
  __device__ void copy_tile(const DecodeStageInfo& stage, int32_t page) {
    const int32_t tokens = box_tokens(stage, stage.key_begin);
    const int32_t boxes = kDecodeTile / tokens;
    const int32_t in_tile = lane % boxes * tokens, part = lane / boxes;
    const bool copies = page >= 0 && part < 2 * Layout::kHalves;
    const int32_t bytes = tokens * (Layout::kSwizzled ? 128 : Layout::kRowBytes);
    const bool with_q = (stage.flags & kDecodeItemBegin) != 0;
    if (with_q) await_q_place();
    ++tiles_since_q;
    begin(stage, __popc(__ballot_sync(~0u, copies)) * bytes +
                     (with_q ? stage.rows * Layout::kRowBytes : 0));
    if (copies) {
      const int32_t side = part / Layout::kHalves, half = part % Layout::kHalves;
      const uint32_t to =
          shared_address(shared) + ring.stage * Layout::kStageBytes + side * Layout::kTileBytes;
      const int32_t head = side * p.num_kv_heads + stage.kv_head;
      const int32_t in_page = (stage.key_begin + in_tile) % p.page_tokens;
      if constexpr (Layout::kSwizzled) {
        tensor_copy(to + half * Layout::kHalfBytes + in_tile * 128,
                    tokens == maps.box_tokens ? maps.whole : maps.ends, full(), half * 64, in_page,
                    head, page);
      } else {
        const int64_t row = static_cast<int64_t>(head) * p.page_tokens + in_page;
        bulk_copy(to + in_tile / 8 * Layout::kPieceBytes,
                  p.pages + page * p.page_bytes + row * Layout::kRowBytes, bytes, full());
      }
    }
    const int32_t row = lane - 16;
    if (with_q && row >= 0 && row < stage.rows) {
      const int32_t head = stage.first_head + row;
      const __nv_bfloat16* q = p.q + (stage.y_row + head / p.group) * p.q_stride +
                               (stage.kv_head * p.group + head % p.group) * kDim;
      bulk_copy(shared_address(shared + Layout::kQAt) + row * Layout::kRowBytes, q,
                Layout::kRowBytes, full());
    }
    ring.advance();
  }
};

}  // namespace baton
