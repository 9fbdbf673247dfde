// The warpgroups that compute in a prefill attention CTA. Device code only.
#pragma once

#include "kernels/attention/prefill_layout.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace baton {

template <int kDim>
struct PrefillConsumer {
  using Layout = PrefillLayout<kDim>;
  static constexpr int kScores = Layout::kTile / 2;  // of this thread, two rows
  static constexpr int kOut = kDim / 2;
  static constexpr int kSteps = Layout::kTile / 16;

  const AttentionParams& p;
  const PrefillShared<kDim> shared;
  const int32_t warpgroup;  // 0 or 1
  const int32_t thread;     // in it
  RingPosition<Layout::kStages> keys_ring, values_ring;
  uint32_t q;  // the item's, of this warpgroup
  float scores[kScores];
  float out[kOut];
  uint32_t weights[kSteps][4];
  float max[2], total[2], factor[2];
  int32_t position[2];
  int32_t first_position, last_position;  // of the warpgroup's rows

  __device__ int32_t row(int half) const { return thread / 32 * 16 + thread % 32 / 4 + 8 * half; }

  __device__ void run() {
    RingPosition<2> items;
    // The other warpgroup's first turn; from then on they hand it back and forth.
    if (warpgroup == 1) arrive_turn(0);
    while (true) {
      const PrefillItem item = shared.take_item(items);
      if (item.rows == 0) return;
      const auto place = shared.q_place(items);
      q = shared.q(place.slot, warpgroup);
      attend(item, shared.q_full(place.slot), place.parity);
      items.advance();
    }
  }

  __device__ void await_turn(int32_t of) const {
    asm volatile("barrier.sync %0, 256;" ::"r"(3 + of) : "memory");
  }
  __device__ void arrive_turn(int32_t of) const {
    asm volatile("barrier.arrive %0, 256;" ::"r"(3 + of) : "memory");
  }

  __device__ void attend(const PrefillItem& item, uint32_t q_full, uint32_t q_parity) {
    const int32_t row_begin = warpgroup * kWarpgroupRows;
#pragma unroll
    for (int h = 0; h < 2; ++h) position[h] = item.position_of(p, row_begin + row(h));
    first_position = item.position_of(p, row_begin);
    last_position = item.position_of(p, row_begin + kWarpgroupRows - 1);
    max[0] = max[1] = minus_infinity();
    total[0] = total[1] = 0;
#pragma unroll
    for (int i = 0; i < kOut; ++i) out[i] = 0;

    const int32_t begin = item.tile_begin(Layout::kTile), end = item.tile_end(Layout::kTile);
    barrier_wait(q_full, q_parity);
    await_turn(warpgroup);
    multiply_keys();
    arrive_turn(1 - warpgroup);
    wgmma_wait<0>();
    wgmma_pin(scores);
    release_keys();
    soften(begin * Layout::kTile);
    pack_weights();
    for (int32_t tile = begin + 1; tile < end; ++tile) {
      await_turn(warpgroup);
      multiply_keys();
      barrier_wait(shared.values_full(values_ring.stage), values_ring.parity);
      multiply_values();
      arrive_turn(1 - warpgroup);
      wgmma_wait<1>();
      wgmma_pin(scores);
      release_keys();
      soften(tile * Layout::kTile);
      wgmma_wait<0>();
      wgmma_pin(out);
      release_values();
#pragma unroll
      for (int i = 0; i < kOut; ++i) out[i] *= factor[i / 2 % 2];
      pack_weights();
    }
    if (thread % 32 == 0) barrier_arrive(shared.empty(q_full));
    barrier_wait(shared.values_full(values_ring.stage), values_ring.parity);
    zero_unseen_values((end - 1) * Layout::kTile, item.last_key);
    multiply_values();
    wgmma_wait<0>();
    wgmma_pin(out);
    release_values();
    store(item);
  }

  __device__ void multiply_keys() {
    barrier_wait(shared.keys_full(keys_ring.stage), keys_ring.parity);
    wgmma_pin(scores);
    wgmma_fence();
    const uint64_t rows = tile_descriptor(q);
    const uint64_t keys = tile_descriptor(shared.keys(keys_ring.stage));
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s) {
      const int block = s / 4, at = s % 4 * 32;
      wgmma(scores, rows + ((block * Layout::kQBlockBytes + at) >> 4),
            keys + ((block * Layout::kBlockBytes + at) >> 4), s > 0);
    }
    wgmma_commit();
  }

  __device__ void multiply_values() {
    const uint64_t values =
        transposed_tile_descriptor(shared.values(values_ring.stage), Layout::kBlockBytes);
    wgmma_pin(out);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      wgmma(out, weights[s], values + ((s * 16 * 128) >> 4), true);
    }
    wgmma_commit();
  }

  __device__ void release_keys() {
    if (thread % 32 == 0) barrier_arrive(shared.empty(shared.keys_full(keys_ring.stage)));
    keys_ring.advance();
  }
  __device__ void release_values() {
    if (thread % 32 == 0) barrier_arrive(shared.empty(shared.values_full(values_ring.stage)));
    values_ring.advance();
  }

  // Scores to weights, in place; sets the factor for what was summed before.
  __device__ void soften(int32_t key_begin) {
    // Without a cap the factor of the scores is folded into the exponent.
    const float scale = p.cap_factor == 0 ? p.score_factor : 1.0f;
    if (p.cap_factor != 0) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) scores[i] = capped_score(p, scores[i]);
    }
    if (key_begin + Layout::kTile - 1 > first_position ||
        (p.window > 0 && key_begin <= last_position - p.window)) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const int32_t key = key_begin + i / 4 * 8 + thread % 4 * 2 + i % 2;
        if (!is_visible(key, position[i / 2 % 2], p.window)) scores[i] = minus_infinity();
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = max[h];
#pragma unroll
      for (int i = 2 * h; i < kScores; i += 4) {
        largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      const float reference = finite_max(largest) * scale;
      factor[h] = exp2_fast(max[h] * scale - reference);
      max[h] = largest;
      float sum = 0;
#pragma unroll
      for (int i = 2 * h; i < kScores; i += 4) {
        scores[i] = exp2_fast(__fmaf_rn(scores[i], scale, -reference));
        scores[i + 1] = exp2_fast(__fmaf_rn(scores[i + 1], scale, -reference));
        sum += scores[i] + scores[i + 1];
      }
      total[h] = __fmaf_rn(total[h], factor[h], sum);
    }
  }

  __device__ void pack_weights() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[s][i] = bf16_pair(scores[8 * s + 2 * i], scores[8 * s + 2 * i + 1]);
      }
    }
  }

  // Memory that nobody wrote may hold NaN, and 0 * NaN is no 0. Both warpgroups do it, each for
  // itself.
  __device__ void zero_unseen_values(int32_t key_begin, int32_t last_key) const {
    const int32_t seen = last_key + 1 - key_begin;
    if (seen >= Layout::kTile) return;
    constexpr int kChunks = 8 * Layout::kBlocks;  // whole rows: no need to know the swizzle
    for (int32_t i = seen * kChunks + thread; i < Layout::kTile * kChunks; i += kWarpgroupThreads) {
      const int32_t key = i / kChunks, chunk = i % kChunks;
      const uint32_t at = shared.values(values_ring.stage) + chunk / 8 * Layout::kBlockBytes +
                          key * 128 + chunk % 8 * 16;
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
    }
    fence_async_proxy();
    group_sync(1 + warpgroup, kWarpgroupThreads);
  }

  __device__ void store(const PrefillItem& item) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = total[h] + __shfl_xor_sync(~0u, total[h], 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const int32_t r = warpgroup * kWarpgroupRows + row(h);
      if (r >= item.rows) continue;
      const float inverse = __frcp_rn(sum);
      Bf16* y = p.y + item.element(p, r, p.y_stride, kDim) + thread % 4 * 2;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        *reinterpret_cast<uint32_t*>(y + i * 8) =
            bf16_pair(out[4 * i + 2 * h] * inverse, out[4 * i + 2 * h + 1] * inverse);
      }
    }
  }
};

}  // namespace baton
