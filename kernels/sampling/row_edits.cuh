// A row changed by its RowEdits on the way from memory to memory. The twin of ChoiceState::adjust
// (model/choice_state.cc), rounding by rounding. Code of a block of kScanThreads, kWidth tokens a
// thread at a time: 4 if the row and what belongs to it are aligned for vectors, else 1.
#pragma once

#include <cstdint>

#include "kernels/sampling/best_token.cuh"
#include "kernels/sampling/sampling.h"

namespace baton {

// Tokens at a time in shared memory, where rows have lists of bans or biases.
inline constexpr int kEditTokens = 4096;

template <int kWidth, typename E>
struct alignas(kWidth * sizeof(E)) EditVector {
  E v[kWidth];
};
template <int kWidth, typename E>
inline __device__ EditVector<kWidth, E> load_vector(const E* from) {
  return *reinterpret_cast<const EditVector<kWidth, E>*>(from);
}

template <int kWidth>
inline __device__ void mask_logits(const RowEdits& edits, int token,
                                   EditVector<kWidth, float>& logits) {
  if (edits.allowed == nullptr) return;
  const uint32_t bits = edits.allowed[token / 32] >> (token % 32);
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if ((bits >> j & 1) == 0) logits.v[j] = -INFINITY;
}

inline __device__ float penalized(float logit, int32_t seen, const RowEdits& edits) {
  if (seen == 0) return logit;
  logit = logit > 0 ? __fdiv_rn(logit, edits.repetition_penalty)
                    : __fmul_rn(logit, edits.repetition_penalty);
  logit = __fsub_rn(logit, __fmul_rn(edits.frequency_penalty, static_cast<float>(seen - 1)));
  return seen > 1 ? __fsub_rn(logit, edits.presence_penalty) : logit;
}

// Adds the choice's last token to its counts where it is not in them yet.
template <int kWidth>
inline __device__ void penalize_logits(const RowEdits& edits, int token, int32_t last,
                                       EditVector<kWidth, float>& logits) {
  auto seen = load_vector<kWidth>(static_cast<const int32_t*>(edits.counts) + token);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (edits.counts_last != 0 && token + j == last)
      edits.counts[last] = seen.v[j] = max(seen.v[j], 1) + 1;
    logits.v[j] = penalized(logits.v[j], seen.v[j], edits);
  }
}

// Mask, bans and biases of tokens [from, to), to `tile`. Calls see_raw(logit, token) for each token
// of the row as it was.
template <int kWidth, typename SeeRaw>
inline __device__ void edit_by_lists(const float* row, const RowEdits& edits, int from, int to,
                                     int32_t last, float* tile, SeeRaw see_raw) {
  for (int i = from + threadIdx.x * kWidth; i < to; i += kScanThreads * kWidth) {
    auto logits = load_vector<kWidth>(row + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) see_raw(logits.v[j], i + j);
    mask_logits(edits, i, logits);
    *reinterpret_cast<EditVector<kWidth, float>*>(tile + i - from) = logits;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < edits.num_bans; i += kScanThreads) {
    const TokenBan ban = edits.bans[i];
    if (ban.token < from || ban.token >= to) continue;
    if (ban.after < 0 || ban.after == last) tile[ban.token - from] = -INFINITY;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < edits.num_biases; i += kScanThreads) {
    const TokenBias bias = edits.biases[i];
    if (bias.token < from || bias.token >= to) continue;
    tile[bias.token - from] = __fadd_rn(tile[bias.token - from], bias.bias);
  }
  __syncthreads();
}

// Writes tokens [begin, end) of the changed row; no other block has any of them. Calls see_raw and
// see_edited(logit, token) for each.
template <int kWidth, typename SeeRaw, typename SeeEdited>
inline __device__ void edit_tokens(const float* row, const RowEdits& edits, int begin, int end,
                                   float* tile, SeeRaw see_raw, SeeEdited see_edited) {
  const int32_t last = *edits.last_token;
  const bool lists = edits.num_bans + edits.num_biases > 0;
  for (int from = begin; from < end; from += kEditTokens) {
    const int to = min(from + kEditTokens, end);
    if (lists) edit_by_lists<kWidth>(row, edits, from, to, last, tile, see_raw);
    // Each thread has the places of the tile that it fills the next time.
    for (int i = from + threadIdx.x * kWidth; i < to; i += kScanThreads * kWidth) {
      auto logits = load_vector<kWidth>(lists ? tile + i - from : row + i);
      if (!lists) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) see_raw(logits.v[j], i + j);
        mask_logits(edits, i, logits);
      }
      if (edits.counts != nullptr) penalize_logits(edits, i, last, logits);
      *reinterpret_cast<EditVector<kWidth, float>*>(edits.edited + i) = logits;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) see_edited(logits.v[j], i + j);
    }
  }
}

}  // namespace baton
