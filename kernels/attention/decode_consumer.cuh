// The warps that compute in a decode attention CTA. Device code only.
#pragma once

#include "kernels/attention/attention_tile.cuh"
#include "kernels/attention/decode_layout.cuh"
#include "kernels/attention/decode_sums.cuh"
#include "kernels/cuda/pipeline.cuh"

namespace baton {

template <int kDim>
struct DecodeConsumer {
  using Layout = DecodeLayout<kDim>;
  static constexpr int kSteps = kDim / 16;
  static constexpr int kPairs = (kSteps + 3) / 4;
  using Sums = DecodeSums<kPairs>;

  const AttentionParams& p;
  unsigned char* const shared;
  const int32_t warp, lane;
  const DecodeStageInfo* info;  // of the tile at hand
  uint32_t keys, values;        // addresses of the stage
  int32_t position[2];          // of this thread's rows
  uint32_t q[kSteps][4];

  __device__ int32_t row(int half) const { return lane / 4 + 8 * half; }
  __device__ bool has_pair(int pair) const { return kSteps % 4 == 0 || warp + 4 * pair < kSteps; }
  __device__ int32_t column(int block) const {
    return (warp + 4 * (block / 2)) * 16 + block % 2 * 8 + lane % 4 * 2;
  }

  __device__ void run() {
    RingPosition<Layout::kStages> ring;
    int32_t tile_info = 0;
    Sums unit, sums;
    while (true) {
      const uint32_t full = shared_address(shared + Layout::kBarriersAt) + 16 * ring.stage;
      barrier_wait(full, ring.parity);
      info = reinterpret_cast<const DecodeStageInfo*>(shared + Layout::kInfoAt) + tile_info;
      if (++tile_info == Layout::kInfos) tile_info = 0;
      const int32_t flags = info->flags;
      if (flags & kDecodeStop) return;
      if (flags & kDecodeItemBegin) {
        sums.clear();
        unit.clear();
      }
      if ((flags & kDecodeNoKeys) == 0) {
        keys = shared_address(shared) + ring.stage * Layout::kStageBytes;
        values = keys + Layout::kTileBytes;
        if (flags & kDecodeItemBegin) load_q();
        add_tile(unit);
      }
      barrier_arrive(full + 8);
      ring.advance();
      if (flags & kDecodeUnitEnd) end_unit(unit, sums);
      if (flags & kDecodeItemEnd) {
        if (info->slot < 0) {
          store(sums);
        } else if (all_units_done()) {
          add_units();
        }
      }
    }
  }

  __device__ void load_q() {
    const uint32_t from =
        shared_address(shared + Layout::kQAt) + lane % 16 * Layout::kRowBytes + lane / 16 * 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) load_matrices(q[s], from + s * 32);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      position[h] = info->position + (info->first_head + row(h)) / p.group;
    }
  }

  // This warp scores matrices 2 * warp and 2 * warp + 1 of 8 keys each.
  __device__ void score(float (&scores)[2][4]) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      float even[4] = {}, odd[4] = {};  // two chains hide the tensor core's latency
      const uint32_t key_row = keys + (8 * (2 * warp + m) + lane % 8) * 128;
#pragma unroll
      for (int s = 0; s < kSteps; s += 2) {
        uint32_t k[4];
        // With an odd number of steps half of the last load is not used.
        load_matrices(k, key_row + Layout::column_offset(2 * s, lane / 8, lane % 8));
        mma_16x8x16<Bf16>(even, q[s], k[0], k[1]);
        if (s + 1 < kSteps) mma_16x8x16<Bf16>(odd, q[s + 1], k[2], k[3]);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[m][e] = even[e] + odd[e];
    }
    const int32_t last_key = info->key_begin + kDecodeTile - 1;
    const bool all_visible =
        last_key <= info->position && (p.window == 0 || info->key_begin > info->last - p.window);
    to_scores(p, scores);
    if (all_visible) return;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t key = info->key_begin + 8 * (2 * warp + m) + lane % 4 * 2 + e % 2;
        if (!is_visible(key, position[e / 2], p.window)) scores[m][e] = minus_infinity();
      }
    }
  }

  // Memory that nobody wrote may hold NaN, and 0 * NaN is no 0.
  __device__ void zero_unseen_values() {
    if (info->key_begin >= info->first && info->key_begin + kDecodeTile - 1 <= info->last) return;
    const int32_t in_tile = (warp * 32 + lane) / 2, key = info->key_begin + in_tile;
    if (key < info->first || key > info->last) {
      const uint32_t at = values + in_tile * 128;
      for (int chunk = lane % 2; chunk < kDim / 8; chunk += 2) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(
                         at + Layout::column_offset(chunk, 0, in_tile)),
                     "r"(0)
                     : "memory");
      }
    }
    fence_async_proxy();  // the copy engine writes here next
  }

  __device__ void add_tile(Sums& unit) {
    float scores[2][4];
    zero_unseen_values();
    score(scores);
    float* maxima = reinterpret_cast<float*>(shared + Layout::kMaximaAt);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = fmaxf(fmaxf(scores[0][2 * h], scores[0][2 * h + 1]),
                            fmaxf(scores[1][2 * h], scores[1][2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      if (lane % 4 == 0) maxima[warp * kDecodeRows + row(h)] = largest;
    }
    group_sync(1, kDecodeConsumers);
    float factor[2];
    const uint32_t weights = shared_address(shared + Layout::kWeightsAt);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = unit.max[h];
      for (int w = 0; w < 4; ++w) largest = fmaxf(largest, maxima[w * kDecodeRows + row(h)]);
      const float reference = finite_max(largest);
      factor[h] = exp2_fast(unit.max[h] - reference);
      unit.max[h] = largest;
      for (int m = 0; m < 2; ++m) {
        const uint32_t pair = bf16_pair(exp2_fast(scores[m][2 * h] - reference),
                                        exp2_fast(scores[m][2 * h + 1] - reference));
        const uint32_t at =
            weights + 2 * (row(h) * Layout::kWeightsStride + (2 * warp + m) * 8 + lane % 4 * 2);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pair) : "memory");
      }
    }
    unit.scale(factor[0], factor[1]);
    group_sync(1, kDecodeConsumers);
    add_values(unit, weights);
  }

  __device__ void add_values(Sums& unit, uint32_t weights) const {
    const uint32_t from = weights + 2 * (lane % 16 * Layout::kWeightsStride) + lane / 16 * 16;
#pragma unroll
    for (int s = 0; s < kDecodeTile / 16; ++s) {
      uint32_t w[4];
      load_matrices(w, from + s * 32);
      mma_16x8x16<Bf16>(unit.total, w, kTwoOnes, kTwoOnes);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (!has_pair(pair)) continue;
        uint32_t v[4];
        load_matrices_transposed(
            v, values + (16 * s + lane % 16) * 128 +
                   Layout::column_offset(2 * warp + 8 * pair, lane / 16, lane % 8));
        mma_16x8x16<Bf16>(unit.out[2 * pair], w, v[0], v[1]);
        mma_16x8x16<Bf16>(unit.out[2 * pair + 1], w, v[2], v[3]);
      }
    }
  }

  __device__ float* slot(int32_t unit) const {
    return p.plan.partials +
           static_cast<int64_t>((info->slot + unit) * p.num_kv_heads + info->kv_head) *
               (kDecodeRows * (kDim + 2));
  }

  __device__ void end_unit(Sums& unit, Sums& sums) {
    if (info->slot < 0) {
      sums.add(unit);
    } else {
      float* to = slot(info->unit);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row(h) >= info->rows) continue;
#pragma unroll
        for (int b = 0; b < 2 * kPairs; ++b) {
          if (!has_pair(b / 2)) continue;
          *reinterpret_cast<float2*>(to + row(h) * kDim + column(b)) =
              make_float2(unit.out[b][2 * h], unit.out[b][2 * h + 1]);
        }
        if (warp == 0 && lane % 4 == 0) {
          to[kDecodeRows * kDim + row(h)] = unit.max[h];
          to[kDecodeRows * (kDim + 1) + row(h)] = unit.total[2 * h];
        }
      }
    }
    unit.clear();
  }

  // Counts this item's units as done. True for the item that finishes the last.
  __device__ bool all_units_done() {
    auto* vote = reinterpret_cast<volatile int32_t*>(shared + Layout::kVoteAt);
    group_sync(1, kDecodeConsumers);  // all threads' sums are written
    if (warp == 0 && lane == 0) {
      int32_t* ticket = &p.plan.tickets[info->slot * p.num_kv_heads + info->kv_head];
      const int32_t before = add_acquire_release(ticket, info->part_units);
      const bool last = before + info->part_units == info->num_units;
      if (last) *ticket = 0;
      *vote = last;
    }
    group_sync(1, kDecodeConsumers);
    return *vote != 0;
  }

  // Adds the sums of all units, in order, as DecodeSums::add does; a thread has four columns of a
  // row.
  __device__ void add_units() const {
    constexpr int kBatch = 8;
    constexpr int kColumns = kDim / 4;
    for (int32_t i = warp * 32 + lane; i < info->rows * kColumns; i += kDecodeConsumers) {
      const int32_t r = i / kColumns, column = i % kColumns * 4;
      float out[4] = {}, total = 0, max = minus_infinity();
      for (int32_t begin = 0; begin < info->num_units; begin += kBatch) {
        float4 later[kBatch];
        float later_max[kBatch], later_total[kBatch];
#pragma unroll
        for (int u = 0; u < kBatch; ++u) {
          if (begin + u >= info->num_units) break;
          const float* from = slot(begin + u);
          later[u] = __ldcg(reinterpret_cast<const float4*>(from + r * kDim + column));
          later_max[u] = __ldcg(from + kDecodeRows * kDim + r);
          later_total[u] = __ldcg(from + kDecodeRows * (kDim + 1) + r);
        }
#pragma unroll
        for (int u = 0; u < kBatch; ++u) {
          if (begin + u >= info->num_units) break;
          const Factors f = factors(max, later_max[u]);
          max = f.max;
          total = f.add(total, later_total[u]);
          out[0] = f.add(out[0], later[u].x);
          out[1] = f.add(out[1], later[u].y);
          out[2] = f.add(out[2], later[u].z);
          out[3] = f.add(out[3], later[u].w);
        }
      }
      const float inverse = inverse_of(total);
      *reinterpret_cast<uint2*>(y_of(r) + column) =
          make_uint2(bf16_pair(out[0] * inverse, out[1] * inverse),
                     bf16_pair(out[2] * inverse, out[3] * inverse));
    }
  }

  __device__ Bf16* y_of(int32_t row) const {
    const int32_t head = info->first_head + row;
    return p.y + (info->y_row + head / p.group) * p.y_stride +
           (info->kv_head * p.group + head % p.group) * kDim;
  }
  static __device__ float inverse_of(float total) {
    return total > 0 ? __frcp_rn(total) : 0.0f;
  }

  __device__ void store(const Sums& sums) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row(h) >= info->rows) continue;
      Bf16* y = y_of(row(h));
      const float inverse = inverse_of(sums.total[2 * h]);
#pragma unroll
      for (int b = 0; b < 2 * kPairs; ++b) {
        if (!has_pair(b / 2)) continue;
        *reinterpret_cast<uint32_t*>(y + column(b)) =
            bf16_pair(sums.out[b][2 * h] * inverse, sums.out[b][2 * h + 1] * inverse);
      }
    }
  }
};

}  // namespace baton
