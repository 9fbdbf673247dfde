// Prefill attention on the tensor cores of any GPU since sm_80 (mma.sync, cp.async), for every head
// size: a CTA takes 128 rows (token, query head of the group) of a KV head, 16 a warp, and runs
// over the keys they see, 64 at a time at multiples of 64, with a running softmax
// (FlashAttention-2, Dao 2023). Keys nobody sees are filled with zeros on their way into shared
// memory.
#pragma once

#include "kernels/attention/attention_tile.cuh"
#include "kernels/cuda/launch.h"

namespace baton {

inline constexpr int32_t kPrefillThreads = 2 * kPrefillRows;  // 16 rows a warp
inline constexpr int32_t kPrefillTile = 64;

template <int kDim>
struct PrefillLayout {
  static constexpr int kRowBytes = 2 * kDim + 16;  // padded: eight rows lie in different banks
  static constexpr int kTileBytes = kPrefillTile * kRowBytes;
  static constexpr int kKeysAt = kPrefillRows * kRowBytes;  // behind q
  static constexpr int kNextItemAt = kKeysAt + 4 * kTileBytes;
  static constexpr int kSharedBytes = kNextItemAt + 16;
};

// One item: the rows of a CTA, and this warp's share of them.
template <int kDim>
struct PrefillItem {
  using Layout = PrefillLayout<kDim>;
  static constexpr int kSteps = kDim / 16;
  static constexpr bool kKeepQ = kDim <= 128;  // in registers

  const AttentionParams& p;
  const uint32_t shared;
  const AttentionSequence sequence;
  const int32_t row_begin, rows, kv_head;
  const int32_t thread, warp, lane;
  int32_t first_key, last_key;  // that any row sees
  float out[kDim / 8][4];
  float max[2], total[2];
  uint32_t q[kKeepQ ? kSteps : 1][4];

  __device__ PrefillItem(const AttentionParams& p, uint32_t shared, const PrefillWork& work,
                         int32_t kv_head)
      : p(p),
        shared(shared),
        sequence(p.sequences[work.sequence]),
        row_begin(work.row_begin),
        rows(min(kPrefillRows, sequence.num_tokens * p.group - work.row_begin)),
        kv_head(kv_head),
        thread(threadIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {
    first_key = p.window > 0 ? max0(position_of(0) - p.window + 1) : 0;
    last_key = position_of(rows - 1);
    max[0] = max[1] = minus_infinity();
    total[0] = total[1] = 0;
#pragma unroll
    for (auto& block : out) {
      for (float& value : block) value = 0;
    }
  }

  static __device__ int32_t max0(int32_t value) {
    return value > 0 ? value : 0;
  }
  __device__ int32_t position_of(int32_t row) const {
    return sequence.first_pos + (row_begin + row) / p.group;
  }
  __device__ int32_t row(int half) const {
    return 16 * warp + lane / 4 + 8 * half;
  }

  // The element of q (or y) where a row's head begins.
  __device__ int64_t element(int32_t row, int64_t stride) const {
    const int32_t token = (row_begin + row) / p.group, head = (row_begin + row) % p.group;
    return (sequence.row + token) * stride + (kv_head * p.group + head) * kDim;
  }

  __device__ void copy_q() const {
    constexpr int kChunks = kDim / 8;
    for (int32_t i = thread; i < kPrefillRows * kChunks; i += kPrefillThreads) {
      const int32_t r = i / kChunks, chunk = i % kChunks;
      const bool wanted = r < rows;
      copy_or_zero(shared + r * Layout::kRowBytes + chunk * 16,
                   p.q + (wanted ? element(r, p.q_stride) + chunk * 8 : 0), wanted);
    }
  }

  __device__ void copy_tile(int32_t key_begin, int32_t buffer) const {
    constexpr int kChunks = kDim / 8;
    const uint32_t keys = shared + Layout::kKeysAt + buffer * 2 * Layout::kTileBytes;
    const int64_t values_offset = static_cast<int64_t>(p.num_kv_heads) * p.page_tokens * (2 * kDim);
    for (int32_t i = thread; i < kPrefillTile * kChunks; i += kPrefillThreads) {
      const int32_t r = i / kChunks, chunk = i % kChunks, key = key_begin + r;
      const bool wanted = key >= first_key && key <= last_key;
      const std::byte* from = p.pages;
      if (wanted) {
        const int64_t page = sequence.block_table[key / p.page_tokens];
        const int64_t in_page = static_cast<int64_t>(kv_head) * p.page_tokens + key % p.page_tokens;
        from += page * p.page_bytes + in_page * (2 * kDim) + chunk * 16;
      }
      const uint32_t to = keys + r * Layout::kRowBytes + chunk * 16;
      copy_or_zero(to, from, wanted);
      copy_or_zero(to + Layout::kTileBytes, from + (wanted ? values_offset : 0), wanted);
    }
  }

  __device__ uint32_t q_address() const {
    return shared + (16 * warp + lane % 16) * Layout::kRowBytes + lane / 16 * 16;
  }
  __device__ void load_q() {
    if constexpr (kKeepQ) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) load_matrices(q[s], q_address() + s * 32);
    }
  }

  __device__ void score(uint32_t keys, int32_t key_begin,
                        float (&scores)[kPrefillTile / 8][4]) const {
    for (auto& block : scores) {
      for (float& s : block) s = 0;
    }
    const uint32_t from = keys + (lane / 16 * 8 + lane % 8) * Layout::kRowBytes + lane / 8 % 2 * 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t a[4];
      if constexpr (kKeepQ) {
        for (int i = 0; i < 4; ++i) a[i] = q[s][i];
      } else {
        load_matrices(a, q_address() + s * 32);
      }
#pragma unroll
      for (int n = 0; n < kPrefillTile / 8; n += 2) {
        uint32_t k[4];
        load_matrices(k, from + n * 8 * Layout::kRowBytes + s * 32);
        mma(scores[n], a, k[0], k[1]);
        mma(scores[n + 1], a, k[2], k[3]);
      }
    }
    const int32_t first_position = position_of(16 * warp);
    const bool all_visible = key_begin + kPrefillTile - 1 <= first_position &&
                             (p.window == 0 || key_begin > position_of(16 * warp + 15) - p.window);
    to_scores(p, scores);
    if (all_visible) return;
    const int32_t position[2] = {position_of(row(0)), position_of(row(1))};
#pragma unroll
    for (int n = 0; n < kPrefillTile / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t key = key_begin + 8 * n + lane % 4 * 2 + e % 2;
        if (!is_visible(key, position[e / 2], p.window)) scores[n][e] = minus_infinity();
      }
    }
  }

  // Turns scores into weights; rescales what was summed before.
  __device__ void soften(float (&scores)[kPrefillTile / 8][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = max[h];
#pragma unroll
      for (auto& block : scores) largest = fmaxf(largest, fmaxf(block[2 * h], block[2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
      const float reference = finite_max(largest);
      const float factor = exp2_fast(max[h] - reference);
      max[h] = largest;
      total[h] *= factor;
#pragma unroll
      for (auto& block : scores) {
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          block[e] = exp2_fast(block[e] - reference);
          total[h] += block[e];
        }
      }
#pragma unroll
      for (auto& block : out) {
        block[2 * h] *= factor;
        block[2 * h + 1] *= factor;
      }
    }
  }

  __device__ void add_values(uint32_t values, const float (&weights)[kPrefillTile / 8][4]) {
    const uint32_t from = values + lane % 16 * Layout::kRowBytes + lane / 16 * 16;
#pragma unroll
    for (int s = 0; s < kPrefillTile / 16; ++s) {
      const float(&low)[4] = weights[2 * s];
      const float(&high)[4] = weights[2 * s + 1];
      const uint32_t w[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]),
                             pack_bf16(high[0], high[1]), pack_bf16(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < kDim / 8; n += 2) {
        uint32_t v[4];
        load_matrices_transposed(v, from + s * 16 * Layout::kRowBytes + n * 16);
        mma(out[n], w, v[0], v[1]);
        mma(out[n + 1], w, v[2], v[3]);
      }
    }
  }

  __device__ void run() {
    const int32_t begin = first_key / kPrefillTile, end = last_key / kPrefillTile + 1;
    copy_q();
    copy_tile(begin * kPrefillTile, begin % 2);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const int32_t warp_last = position_of(16 * warp + 15);
    for (int32_t tile = begin; tile < end; ++tile) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();  // the tile has arrived, and nobody reads the other buffer any more
      if (tile == begin) load_q();
      if (tile + 1 < end) copy_tile((tile + 1) * kPrefillTile, (tile + 1) % 2);
      asm volatile("cp.async.commit_group;" ::: "memory");
      if (16 * warp >= rows || tile * kPrefillTile > warp_last) continue;
      const uint32_t keys = shared + Layout::kKeysAt + tile % 2 * 2 * Layout::kTileBytes;
      float scores[kPrefillTile / 8][4];
      score(keys, tile * kPrefillTile, scores);
      soften(scores);
      add_values(keys + Layout::kTileBytes, scores);
    }
    store();
  }

  __device__ void store() const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = total[h] + __shfl_xor_sync(~0u, total[h], 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (row(h) >= rows) continue;
      const float inverse = __frcp_rn(sum);
      __nv_bfloat16* y = p.y + element(row(h), p.y_stride) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<uint32_t*>(y + n * 8) =
            pack_bf16(out[n][2 * h] * inverse, out[n][2 * h + 1] * inverse);
      }
    }
  }
};

template <int kDim>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_attention_kernel(const __grid_constant__ AttentionParams params) {
  using Layout = PrefillLayout<kDim>;
  extern __shared__ __align__(128) unsigned char memory[];
  auto* next_item = reinterpret_cast<volatile int32_t*>(memory + Layout::kNextItemAt);
  wait_for_previous_kernels();
  const int32_t total = params.plan.counts[1] * params.num_kv_heads;
  int32_t item = blockIdx.x;
  while (item < total) {
    int32_t next = 0;
    if (threadIdx.x == 0) next = atomicAdd(&params.plan.queues[2], 1) + gridDim.x;
    PrefillItem<kDim>(params, shared_address(memory),
                      params.plan.prefill_work[item / params.num_kv_heads],
                      item % params.num_kv_heads)
        .run();
    if (threadIdx.x == 0) *next_item = next;
    __syncthreads();
    item = *next_item;
    __syncthreads();
  }
  let_next_kernel_start();
  if (threadIdx.x == 0 &&
      atomicAdd(&params.plan.queues[3], 1) == static_cast<int32_t>(gridDim.x) - 1) {
    params.plan.queues[2] = 0;  // nobody draws any more
    params.plan.queues[3] = 0;
  }
}

template <int kDim>
void launch_prefill_attention(const AttentionParams& params, cudaStream_t stream) {
  using Layout = PrefillLayout<kDim>;
  const auto kernel = prefill_attention_kernel<kDim>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Layout::kSharedBytes),
             "prefill attention");
  launch("prefill attention",
         {.grid = dim3(static_cast<unsigned>(params.plan.num_sms)),
          .block = dim3(kPrefillThreads),
          .shared_bytes = Layout::kSharedBytes},
         stream, kernel, params);
}

}  // namespace baton
