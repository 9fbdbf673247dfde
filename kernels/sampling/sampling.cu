// Two kernels: many blocks a row find its largest logit, then one block a sample draws. Everything
// that decides which token comes out is a comparison of floats or a sum of whole numbers, so it
// does not depend on the order in which threads come; floats are rounded as on CPU (no fused
// multiply-add). The thresholds of top_k and top_p are found in two stages: which bin of weights,
// then, by bisection on their bits, where among the tokens of that bin.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

constexpr int kParts = 16;  // of a row, in the first kernel
constexpr int kScanThreads = 256;
constexpr int kDrawThreads = 1024;
constexpr int kWarps = kDrawThreads / 32;
constexpr int kListTokens = 3072;  // tokens of one bin in shared memory
// A bin holds the weights that are equal but for their last kBinShift bits: a 32nd of an octave, of
// the 44 octaves that weights above the cut lie in. The last is that of weight 1.
constexpr int kBinShift = 18;
constexpr int kBins = 1472;
constexpr uint32_t kFirstBin = (0x3f800000u >> kBinShift) - (kBins - 1);
constexpr float kLogprobFloor = -9999.0f;

struct Partial {
  float largest;
  int32_t token;  // lowest id that has it; INT_MAX: nothing above -infinity
  float exp_sum;  // of exp(x - largest) over the part
  float unused;
};

__device__ void keep_larger(float value, int32_t token, float* best, int32_t* best_token) {
  if (value > *best || (value == *best && token < *best_token)) {
    *best = value;
    *best_token = token;
  }
}

__global__ void __launch_bounds__(kScanThreads) scan_rows_kernel(const SampleArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const SampleParams params = args.params[blockIdx.y];
  const float* row = args.logits + static_cast<int64_t>(params.row) * args.vocab_size;
  const int part_tokens = (args.vocab_size + kParts - 1) / kParts;
  const int begin = blockIdx.x * part_tokens;
  const int end = min(begin + part_tokens, args.vocab_size);

  float best = -INFINITY;
  int32_t token = INT32_MAX;
  for (int i = begin + threadIdx.x; i < end; i += kScanThreads)
    keep_larger(row[i], i, &best, &token);
  __shared__ float bests[kScanThreads / 32];
  __shared__ int32_t tokens[kScanThreads / 32];
  __shared__ float sums[kScanThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) {
    keep_larger(__shfl_down_sync(~0u, best, offset), __shfl_down_sync(~0u, token, offset), &best,
                &token);
  }
  if (lane == 0) {
    bests[warp] = best;
    tokens[warp] = token;
  }
  __syncthreads();
  best = -INFINITY;
  token = INT32_MAX;
  for (int w = 0; w < kScanThreads / 32; ++w) keep_larger(bests[w], tokens[w], &best, &token);

  float sum = 0;
  if (params.want_logprob != 0) {
    const float largest = best == -INFINITY ? 0.0f : best;
    for (int i = begin + threadIdx.x; i < end; i += kScanThreads) sum += expf(row[i] - largest);
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < kScanThreads / 32; ++w) sum += sums[w];
  }
  if (threadIdx.x == 0) {
    reinterpret_cast<Partial*>(args.scratch)[blockIdx.y * kParts + blockIdx.x] = {best, token, sum,
                                                                                  0};
  }
}

// The twin of exp_of_negative in model/sampler.cc, rounding by rounding.
__device__ float exp_of_negative(float x) {
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

__device__ uint64_t whole(float weight) {
  return static_cast<uint64_t>(weight * static_cast<float>(uint64_t{1} << kWeightBits));
}

// Which tokens may be drawn: those of larger weight, and of equal weight up to an id. Weights are
// compared by their bits, which order as they do.
struct Cut {
  uint32_t bits = 0;
  int32_t last_token = -1;
  __device__ bool keeps(uint32_t weight_bits, int32_t token) const {
    return weight_bits > bits || (weight_bits == bits && token <= last_token);
  }
};

struct Shared {
  uint64_t warp_sums[kWarps];
  unsigned long long bin_sums[kBins];
  int32_t num_listed;
  int32_t bin;
  uint64_t above;  // the sum of the bins of larger weights
  float weights[kListTokens];
  int32_t tokens[kListTokens];
};

struct Row {
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
__device__ void visit_tokens(const Row& row, int32_t begin, int32_t end, int index, int count,
                             Visit visit) {
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
__device__ uint64_t sum_block(uint64_t value, Shared& shared) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared.warp_sums[threadIdx.x % 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

__device__ int bin_of(uint32_t weight_bits) {
  const uint32_t bin = weight_bits >> kBinShift;
  return bin > kFirstBin ? static_cast<int>(bin - kFirstBin) : 0;
}

// Sums the measures of the tokens inside `within` by bins; returns their total.
template <typename Measure>
__device__ uint64_t sum_bins(const Row& row, const Cut& within, Shared& shared, Measure measure) {
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
__device__ void find_bin(uint64_t wanted, Shared& shared) {
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
__device__ void list_bin(const Row& row, const Cut& within, Shared& shared) {
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
__device__ uint64_t sum_bin(const Row& row, const Cut& within, Shared& shared, Measure measure) {
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
__device__ Cut shortest_run(const Row& row, const Cut& within, uint64_t wanted, Shared& shared,
                            Measure measure) {
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

__device__ Cut find_cut(const Row& row, const SampleParams& params, Shared& shared) {
  Cut cut;
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

// The first token, by id, at which the running sum of the kept weights exceeds `uniform` of their
// total. Each level cuts the range into one run a warp and goes on in the run that has the point.
__device__ int32_t draw(const Row& row, const Cut& cut, double uniform, int32_t likeliest,
                        Shared& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t begin = 0, end = row.vocab_size;
  uint64_t point = 0;
  for (bool first = true; end - begin > 1; first = false) {
    int32_t run = (end - begin + kWarps - 1) / kWarps;
    if (run > 4) run = (run + 3) / 4 * 4;  // so that whole vectors are loaded
    const int32_t run_begin = min(begin + warp * run, end);
    const int32_t run_end = min(run_begin + run, end);
    uint64_t sum = 0;
    visit_tokens(row, run_begin, run_end, lane, 32, [&](float weight, int32_t token) {
      if (cut.keeps(__float_as_uint(weight), token)) sum += whole(weight);
    });
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    __syncthreads();
    if (lane == 0) shared.warp_sums[warp] = sum;
    __syncthreads();
    if (first) {
      uint64_t total = 0;
      for (int w = 0; w < kWarps; ++w) total += shared.warp_sums[w];
      if (total == 0) return likeliest;
      point = min(static_cast<uint64_t>(__dmul_rn(uniform, static_cast<double>(total))), total - 1);
    }
    int w = 0;
    while (w < kWarps - 1 && point >= shared.warp_sums[w]) point -= shared.warp_sums[w++];
    begin = min(begin + w * run, end);
    end = min(begin + run, end);
  }
  return begin;
}

__global__ void __launch_bounds__(kDrawThreads) draw_kernel(const SampleArgs args) {
  __shared__ Shared shared;
  let_next_kernel_start();
  wait_for_previous_kernels();
  const SampleParams params = args.params[blockIdx.x];
  const auto* partials = reinterpret_cast<const Partial*>(args.scratch) + blockIdx.x * kParts;
  float largest = -INFINITY;
  int32_t likeliest = INT32_MAX;
  for (int i = 0; i < kParts; ++i)
    keep_larger(partials[i].largest, partials[i].token, &largest, &likeliest);
  const bool finite = likeliest != INT32_MAX && isfinite(largest);

  const float* logits = args.logits + static_cast<int64_t>(params.row) * args.vocab_size;
  int32_t token = finite ? likeliest : -1;
  if (finite && params.greedy == 0) {
    const Row row{logits, args.vocab_size, largest, __fsub_rn(largest, params.cut_nats),
                  params.inverse_temperature};
    token = draw(row, find_cut(row, params, shared), params.uniform, likeliest, shared);
  }
  if (threadIdx.x != 0) return;
  float logprob = 0;
  if (finite && params.want_logprob != 0) {
    double sum = 0;
    for (int i = 0; i < kParts; ++i) {
      const Partial& part = partials[i];
      // A part without a number has NaN for its sum where it holds NaN, which must show.
      sum += part.exp_sum *
             exp(static_cast<double>((part.largest == -INFINITY ? 0.0f : part.largest) - largest));
    }
    const auto value = static_cast<float>(logits[token] - (largest + log(sum)));
    logprob = isnan(value) ? value : value > kLogprobFloor ? fminf(value, 0.0f) : kLogprobFloor;
  }
  args.results[blockIdx.x] = {token, logprob};
}

__global__ void resolve_tokens_kernel(const int32_t* source, const SampleResult* last,
                                      int32_t* tokens, int32_t num_tokens) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= num_tokens) return;
  const int32_t token = source[i];
  // -1 is the token of a row that was not finite: its step fails, this one may not fault.
  tokens[i] = token >= 0 ? token : max(last[-1 - token].token, 0);
}

}  // namespace

int64_t sample_scratch_bytes(int32_t num_samples) {
  return int64_t{num_samples} * kParts * static_cast<int64_t>(sizeof(Partial));
}

void sample_cuda(const SampleArgs& args, cudaStream_t stream) {
  const auto samples = static_cast<unsigned>(args.num_samples);
  launch("sample", {.grid = dim3(kParts, samples), .block = dim3(kScanThreads)}, stream,
         scan_rows_kernel, args);
  launch("sample", {.grid = dim3(samples), .block = dim3(kDrawThreads)}, stream, draw_kernel, args);
}

void resolve_tokens_cuda(const int32_t* source, const SampleResult* last, int32_t* tokens,
                         int32_t num_tokens, cudaStream_t stream) {
  constexpr int kThreads = 256;
  launch("resolve_tokens",
         {.grid = dim3(static_cast<unsigned>((num_tokens + kThreads - 1) / kThreads)),
          .block = dim3(kThreads)},
         stream, resolve_tokens_kernel, source, last, tokens, num_tokens);
}

}  // namespace baton
