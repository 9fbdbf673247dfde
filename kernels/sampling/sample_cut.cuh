// Which tokens of a row may be drawn: their weights, and the cut that top_k, top_p and min_p make.
// The thresholds of top_k and top_p are found in two stages: which bin of weights, then, by
// bisection on their bits, where among the tokens of that bin. Code of a block of kDrawThreads.
#pragma once

#include <cstdint>

#include "kernels/sampling/sampling.h"

namespace baton {

inline constexpr int kDrawThreads = 1024;
inline constexpr int kWarps = kDrawThreads / 32;
inline constexpr int kListTokens = 3072;  // tokens of one bin in shared memory
// A bin holds the weights that are equal but for their last kBinShift bits: a 32nd of an octave, of
// the 44 octaves that weights above the cut lie in. The last is that of weight 1.
inline constexpr int kBinShift = 18;
inline constexpr int kBins = 1472;
inline constexpr uint32_t kFirstBin = (0x3f800000u >> kBinShift) - (kBins - 1);

// The twin of exp_of_negative in model/sampler.cc, rounding by rounding.
inline __device__ float exp_of_negative(float x) {
  constexpr float kRound = 12582912.0f;
  const float powers = __fsub_rn(__fadd_rn(__fmul_rn(x, 1.44269504f), kRound), kRound);
  const float rest =
      __fadd_rn(__fsub_rn(x, __fmul_rn(powers, 0.693359375f)), __fmul_rn(powers, 2.12194440e-4f));
  constexpr float kTerms[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  float sum = 1.0f / 720;
#pragma unroll
  for (const float term : kTerms) sum = __fadd_rn(__fmul_rn(sum, rest), term);
  return __fmul_rn(sum, __int_as_float((static_cast<int32_t>(powers) + 127) << 23));
}

inline __device__ uint64_t whole(float weight) {
  return static_cast<uint64_t>(weight * static_cast<float>(uint64_t{1} << kWeightBits));
}

// Which tokens may be drawn: those of larger weight, and of equal weight up to an id. Weights are
// compared by their bits, which order as they do.
struct SampleCut {
  uint32_t bits = 0;
  int32_t last_token = -1;
  __device__ bool keeps(uint32_t weight_bits, int32_t token) const {
    return weight_bits > bits || (weight_bits == bits && token <= last_token);
  }
};

struct DrawShared {
  uint64_t warp_sums[kWarps];
  unsigned long long bin_sums[kBins];
  int32_t num_listed;
  int32_t bin;
  uint64_t above;  // the sum of the bins of larger weights
  float weights[kListTokens];
  int32_t tokens[kListTokens];
};

struct DrawRow {
  const float* logits;
  int32_t vocab_size;
  float largest;
  float cut;
  float inverse_temperature;

  // 0: too unlikely to be drawn.
  __device__ float weight_of(float logit) const {
    return logit > cut ? exp_of_negative(__fmul_rn(__fsub_rn(logit, largest), inverse_temperature))
                       : 0.0f;
  }
};

// Calls visit(weight, token) for every token in [begin, end) that may be drawn; thread `index` of
// `count` takes its share. Four logits a load where rows are aligned for it.
template <typename Visit>
inline __device__ void visit_tokens(const DrawRow& row, int32_t begin, int32_t end, int index,
                                    int count, Visit visit) {
  const auto one = [&](float logit, int32_t token) {
    const float weight = row.weight_of(logit);
    if (weight > 0) visit(weight, token);
  };
  if (row.vocab_size % 4 == 0 && begin % 4 == 0 && end % 4 == 0) {
#pragma unroll 2
    for (int32_t i = begin + index * 4; i < end; i += count * 4) {
      const float4 logits = *reinterpret_cast<const float4*>(row.logits + i);
      one(logits.x, i);
      one(logits.y, i + 1);
      one(logits.z, i + 2);
      one(logits.w, i + 3);
    }
    return;
  }
  for (int32_t i = begin + index; i < end; i += count) one(row.logits[i], i);
}

// The sum over the block, in every thread.
inline __device__ uint64_t sum_block(uint64_t value, DrawShared& shared) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared.warp_sums[threadIdx.x % 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

inline __device__ int bin_of(uint32_t weight_bits) {
  const uint32_t bin = weight_bits >> kBinShift;
  return bin > kFirstBin ? static_cast<int>(bin - kFirstBin) : 0;
}

// Sums the measures of the tokens inside `within` by bins; returns their total.
template <typename Measure>
inline __device__ uint64_t sum_bins(const DrawRow& row, const SampleCut& within, DrawShared& shared,
                                    Measure measure) {
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += kDrawThreads) shared.bin_sums[i] = 0;
  __syncthreads();
  visit_tokens(row, 0, row.vocab_size, threadIdx.x, kDrawThreads, [&](float weight, int32_t token) {
    const uint32_t bits = __float_as_uint(weight);
    if (within.keeps(bits, token)) {
      atomicAdd(&shared.bin_sums[bin_of(bits)], static_cast<unsigned long long>(measure(weight)));
    }
  });
  __syncthreads();
  uint64_t sum = 0;
  for (int i = threadIdx.x; i < kBins; i += kDrawThreads) sum += shared.bin_sums[i];
  return sum_block(sum, shared);
}

// The bin in which the sum, from the largest weight on, reaches `wanted`; fills shared.bin and
// shared.above. REQUIRES: the total is at least `wanted`.
inline __device__ void find_bin(uint64_t wanted, DrawShared& shared) {
  constexpr int kBinsOfLane = kBins / 32;
  static_assert(kBins % 32 == 0);
  __syncthreads();
  if (threadIdx.x < 32) {
    // Lane 0 has the bins of the largest weights.
    const int lane = threadIdx.x, last = kBins - 1 - lane * kBinsOfLane;
    uint64_t own = 0;
    for (int i = 0; i < kBinsOfLane; ++i) own += shared.bin_sums[last - i];
    uint64_t up_to = own;
    for (int offset = 1; offset < 32; offset *= 2) {
      const uint64_t before = __shfl_up_sync(~0u, up_to, offset);
      if (lane >= offset) up_to += before;
    }
    uint64_t above = up_to - own;
    if (above < wanted && up_to >= wanted) {
      int bin = last;
      while (above + shared.bin_sums[bin] < wanted) above += shared.bin_sums[bin--];
      shared.bin = bin;
      shared.above = above;
    }
  }
  if (threadIdx.x == 32) shared.num_listed = 0;
  __syncthreads();
}

// The tokens of the bin inside `within`; num_listed counts them all, also those without room.
inline __device__ void list_bin(const DrawRow& row, const SampleCut& within, DrawShared& shared) {
  const int bin = shared.bin;
  visit_tokens(row, 0, row.vocab_size, threadIdx.x, kDrawThreads, [&](float weight, int32_t token) {
    const uint32_t bits = __float_as_uint(weight);
    if (bin_of(bits) != bin || !within.keeps(bits, token)) return;
    const int32_t at = atomicAdd(&shared.num_listed, 1);
    if (at >= kListTokens) return;
    shared.weights[at] = weight;
    shared.tokens[at] = token;
  });
  __syncthreads();
}

// The sum of measure(weight, token) over the bin's tokens inside `within`.
template <typename Measure>
inline __device__ uint64_t sum_bin(const DrawRow& row, const SampleCut& within, DrawShared& shared,
                                   Measure measure) {
  uint64_t sum = 0;
  if (shared.num_listed <= kListTokens) {
    for (int i = threadIdx.x; i < shared.num_listed; i += kDrawThreads)
      sum += measure(shared.weights[i], shared.tokens[i]);
  } else {
    const int bin = shared.bin;
    visit_tokens(row, 0, row.vocab_size, threadIdx.x, kDrawThreads,
                 [&](float weight, int32_t token) {
                   const uint32_t bits = __float_as_uint(weight);
                   if (bin_of(bits) == bin && within.keeps(bits, token))
                     sum += measure(weight, token);
                 });
  }
  return sum_block(sum, shared);
}

// The shortest run of likeliest tokens inside `within` whose measures (of a weight alone) sum up to
// `wanted`. REQUIRES: sum_bins() was called with the same, and its total is at least `wanted`.
template <typename Measure>
inline __device__ SampleCut shortest_run(const DrawRow& row, const SampleCut& within,
                                         uint64_t wanted, DrawShared& shared, Measure measure) {
  find_bin(wanted, shared);
  list_bin(row, within, shared);
  wanted -= shared.above;
  const auto at_least = [&](uint32_t bits) {
    return sum_bin(row, within, shared, [&](float weight, int32_t) {
      return __float_as_uint(weight) >= bits ? measure(weight) : uint64_t{0};
    });
  };
  // The first bin takes everything below it too.
  uint32_t bits = shared.bin == 0 ? 0 : (shared.bin + kFirstBin) << kBinShift;
  for (uint32_t bit = shared.bin == 0 ? 1u << 29 : 1u << (kBinShift - 1); bit > 0; bit >>= 1) {
    if (at_least(bits | bit) >= wanted) bits |= bit;
  }
  // Tokens of that very weight: as many as are needed, lowest ids first.
  const uint64_t above = at_least(bits + 1);
  const uint64_t one = measure(__uint_as_float(bits));
  const uint64_t ties = (wanted - above + one - 1) / one;
  const auto ties_up_to = [&](int32_t last) {
    return sum_bin(row, within, shared, [&](float weight, int32_t token) {
      return __float_as_uint(weight) == bits && token <= last ? uint64_t{1} : uint64_t{0};
    });
  };
  if (ties_up_to(INT32_MAX - 1) == ties)
    return {bits, within.bits == bits ? within.last_token : INT32_MAX};
  int32_t last = 0;  // the lowest id up to which there are so many
  for (int32_t bit = 1 << 20; bit > 0; bit >>= 1) {
    if (ties_up_to(last + bit - 1) < ties) last += bit;
  }
  return {bits, last};
}

inline __device__ SampleCut find_cut(const DrawRow& row, const SampleParams& params,
                                     DrawShared& shared) {
  SampleCut cut;
  if (params.top_k > 0) {
    const auto one = [](float) { return uint64_t{1}; };
    const auto wanted = static_cast<uint64_t>(params.top_k);
    if (sum_bins(row, cut, shared, one) > wanted) cut = shortest_run(row, cut, wanted, shared, one);
  }
  if (params.top_p < 1.0f) {
    const auto weight = [](float value) { return whole(value); };
    const uint64_t total = sum_bins(row, cut, shared, weight);
    const auto wanted = static_cast<uint64_t>(
        __dmul_rn(static_cast<double>(params.top_p), static_cast<double>(total)));
    cut = shortest_run(row, cut, wanted > 0 ? wanted : 1, shared, weight);
  }
  if (params.min_p > 0 && __float_as_uint(params.min_p) > cut.bits)
    cut = {__float_as_uint(params.min_p), INT32_MAX};
  return cut;
}

}  // namespace baton
