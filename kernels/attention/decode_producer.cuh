// The warp that feeds a decode attention CTA: draws items, copies their tiles into the ring of
// stages. Device code only.
#pragma once

#include "kernels/attention/attention_tile.cuh"
#include "kernels/attention/decode_layout.cuh"
#include "kernels/cuda/pipeline.cuh"

namespace baton {

template <int kDim>
struct DecodeProducer {
  using Layout = DecodeLayout<kDim>;

  // A lane's share of a tile: some keys of a block of K's (side 0) or V's columns.
  struct Copy {
    int32_t tokens, in_tile;
    int32_t side, block;
    bool exists;
  };
  __device__ Copy copy_of(int32_t tokens) const {
    const int32_t boxes = kDecodeTile / tokens, part = lane / boxes;
    return {tokens, lane % boxes * tokens, part / Layout::kBlocks, part % Layout::kBlocks,
            part < 2 * Layout::kBlocks};
  }

  const AttentionParams& p;
  const DecodeMaps& maps;
  unsigned char* const shared;
  const int32_t lane;
  RingPosition<Layout::kStages> ring = {0, 1};    // a fresh barrier lets the opposite parity pass
  RingPosition<Layout::kStages> q_ring = {0, 0};  // where q was last sent
  int32_t tiles_since_q = Layout::kStages;
  int32_t tile_info = 0;
  // What this lane copies of whole tiles and of a sequence's ends. This warp feeds the whole CTA:
  // no division in its loop.
  const Copy whole = copy_of(maps.box_tokens);
  const Copy ends = copy_of(kDecodeEndBox);
  const uint32_t page_factor = 0xffffffffu / p.page_tokens + 1;
  const uint64_t policy = stream_policy();

  __device__ uint32_t full() const {
    return shared_address(shared + Layout::kBarriersAt) + 16 * ring.stage;
  }
  __device__ uint32_t empty() const { return full() + 8; }

  // Work lists and block tables come by copies that precede the step's first kernel, and keys and
  // values of older tokens by earlier steps: so much is read while the kernel before this one still
  // runs, and q and the new tokens' tile when it has finished.
  __device__ void run() {
    int32_t item = static_cast<int32_t>(blockIdx.x);
    Item opened = open(item);
    const int32_t total = p.plan.counts[0] * p.num_kv_heads;
    const uint32_t first_full = full();
    const int32_t early_end = min(opened.end_key, opened.work.first_new - kDecodeTile + 1);
    int32_t early = 0;
    for (; early < Layout::kStages && opened.key < early_end; ++early) send_tile(&opened);
    wait_for_previous_kernels();
    // The next kernel's CTAs take the places of our first to end. Not before the wait: so whatever
    // starts early behind us finds finished what came before us.
    let_next_kernel_start();
    if (early > 0) copy_q(opened.stage, first_full);
    while (item < total) {
      item = produce(&opened);
      if (item < total) opened = open(item);
    }
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

  // An item and the tile to be sent next.
  struct Item {
    DecodeWork work;
    DecodeStageInfo stage;
    int32_t key, end_key;
    int32_t unit_end;
    int32_t page;  // of this lane's copy
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
    stage.unit = work.unit_begin - work.first_unit;
    opened.key = max(stage.first, work.unit_begin * work.unit_tokens) / kDecodeTile * kDecodeTile;
    opened.end_key = min(stage.last + 1, work.unit_end * work.unit_tokens);
    opened.unit_end = (work.unit_begin + 1) * work.unit_tokens;
    opened.page = page_of(opened, opened.key);
    return opened;
  }

  // Sends what has not been sent early. Returns the next item, drawn two tiles before the end: that
  // hides the latency, and the faster CTAs (they differ by a fifth) get more items.
  __device__ int32_t produce(Item* item) {
    if (item->work.unit_tokens == 0) send_no_keys(item);
    while (item->key + 2 * kDecodeTile < item->end_key) send_tile_with_q(item);
    const int32_t next = lane == 0 ? atomicAdd(&p.plan.queues[0], 1) + gridDim.x : 0;
    while (item->key < item->end_key) send_tile_with_q(item);
    return __shfl_sync(~0u, next, 0);
  }

  __device__ void send_no_keys(Item* item) {
    item->stage.flags |= kDecodeItemEnd | kDecodeNoKeys;
    begin(item->stage, 0);
    ring.advance();
    ++tiles_since_q;
  }

  // An item's first tile brings its q.
  __device__ void send_tile_with_q(Item* item) {
    const bool is_first = (item->stage.flags & kDecodeItemBegin) != 0;
    const uint32_t barrier = full();
    send_tile(item);
    if (is_first) copy_q(item->stage, barrier);
  }

  __device__ void send_tile(Item* item) {
    DecodeStageInfo& stage = item->stage;
    const int32_t next_key = item->key + kDecodeTile;
    const bool is_end = next_key >= item->end_key;
    const bool is_unit_end = is_end || next_key == item->unit_end;
    const int32_t next_page = is_end ? -1 : page_of(*item, next_key);
    stage.key_begin = item->key;
    stage.flags |= (is_unit_end ? kDecodeUnitEnd : 0) | (is_end ? kDecodeItemEnd : 0);
    copy_tile(stage, item->page);
    stage.flags = 0;
    item->key = next_key;
    item->page = next_page;
    if (is_unit_end) {
      ++stage.unit;
      item->unit_end += item->work.unit_tokens;
    }
  }

  // A sequence's ends are read in small boxes.
  __device__ const Copy& copy_of_tile(const DecodeStageInfo& stage, int32_t tile) const {
    return tile >= stage.first && tile + kDecodeTile - 1 <= stage.last ? whole : ends;
  }

  __device__ int32_t page_index(int32_t key) const {
    // Exact for keys below 2^32 / page_tokens.
    return static_cast<int32_t>(__umulhi(static_cast<uint32_t>(key), page_factor));
  }

  // The page of this lane's copy; -1 where no row sees any of it.
  __device__ int32_t page_of(const Item& item, int32_t tile) const {
    const Copy copy = copy_of_tile(item.stage, tile);
    const int32_t key = tile + copy.in_tile;
    if (!copy.exists || key > item.stage.last || key + copy.tokens - 1 < item.stage.first)
      return -1;
    return item.work.block_table[page_index(key)];
  }

  // There is one place for q: the last item must have been begun by the consumers.
  __device__ void await_q_place() {
    if (tiles_since_q < Layout::kStages) {
      const uint32_t back = q_ring.stage;
      barrier_wait(shared_address(shared + Layout::kBarriersAt) + 16 * back + 8, q_ring.parity ^ 1);
    }
    tiles_since_q = 0;
    q_ring = ring;
  }

  __device__ void copy_tile(const DecodeStageInfo& stage, int32_t page) {
    const Copy copy = copy_of_tile(stage, stage.key_begin);
    const bool with_q = (stage.flags & kDecodeItemBegin) != 0;
    if (with_q) await_q_place();
    ++tiles_since_q;
    begin(stage, __popc(__ballot_sync(~0u, page >= 0)) * copy.tokens * 128 +
                     (with_q ? stage.rows * Layout::kRowBytes : 0));
    if (page >= 0) {
      const uint32_t to = shared_address(shared) + ring.stage * Layout::kStageBytes +
                          copy.side * Layout::kTileBytes;
      const int32_t head = copy.side * p.num_kv_heads + stage.kv_head;
      const int32_t key = stage.key_begin + copy.in_tile;
      const int32_t in_page = key - page_index(key) * p.page_tokens;
      tensor_copy(to + copy.block * Layout::kBlockBytes + copy.in_tile * 128,
                  copy.tokens == whole.tokens ? maps.whole : maps.ends, full(), copy.block * 64,
                  in_page, head, page, policy);
    }
    ring.advance();
  }

  // Lane i copies row i of q; it arrives with the item's first tile.
  __device__ void copy_q(const DecodeStageInfo& stage, uint32_t barrier) {
    if (lane >= stage.rows) return;
    const int32_t head = stage.first_head + lane;
    const Bf16* q = p.q + (stage.y_row + head / p.group) * p.q_stride +
                    (stage.kv_head * p.group + head % p.group) * kDim;
    bulk_copy(shared_address(shared + Layout::kQAt) + lane * Layout::kRowBytes, q,
              Layout::kRowBytes, barrier);
  }
};

}  // namespace baton
