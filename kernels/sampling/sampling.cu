// Two kernels: many blocks a row find its largest logit, then one block a sample draws. Everything
// that decides which token comes out is a comparison of floats or a sum of whole numbers, so it
// does not depend on the order in which threads come; floats are rounded as on CPU (no fused
// multiply-add). The thresholds of top_k and top_p are found by bisection on the bits of the
// weights, in a list of the likeliest tokens where that suffices, else in the row itself.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

constexpr int kParts = 16;  // of a row, in the first kernel
constexpr int kScanThreads = 256;
constexpr int kDrawThreads = 1024;
constexpr int kWarps = kDrawThreads / 32;
constexpr int kBins = 512;         // of the distance from the largest logit
constexpr int kListTokens = 3072;  // likeliest tokens in shared memory
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
  uint64_t total;
  int32_t bins[kBins];
  int32_t num_listed;
  int32_t cut_bin;
  int32_t found;
  float weights[kListTokens];
  int32_t tokens[kListTokens];
};

struct Row {
  const float* logits;
  int32_t vocab_size;
  float largest;
  float cut;
  float inverse_temperature;

  __device__ float scaled(float logit) const {
    return __fmul_rn(__fsub_rn(logit, largest), inverse_temperature);
  }
  // 0: too unlikely to be drawn.
  __device__ float weight(int32_t token) const {
    const float logit = logits[token];
    return logit > cut ? exp_of_negative(scaled(logit)) : 0.0f;
  }
  __device__ int bin(float logit) const {
    return min(static_cast<int>(scaled(logit) * (-kBins / kNegligibleNats)), kBins - 1);
  }
};

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

// The sum of measure(weight, token) over all tokens of the list, or of the row.
template <typename Measure>
__device__ uint64_t sum_tokens(const Row& row, bool listed, Shared& shared, Measure measure) {
  uint64_t sum = 0;
  if (listed) {
    for (int i = threadIdx.x; i < shared.num_listed; i += kDrawThreads)
      sum += measure(shared.weights[i], shared.tokens[i]);
  } else {
    for (int i = threadIdx.x; i < row.vocab_size; i += kDrawThreads) {
      const float weight = row.weight(i);
      if (weight > 0) sum += measure(weight, i);
    }
  }
  return sum_block(sum, shared);
}

// The likeliest tokens, as many as fit, whole bins of the distance from the largest.
__device__ void list_likeliest(const Row& row, Shared& shared) {
  for (int i = threadIdx.x; i < kBins; i += kDrawThreads) shared.bins[i] = 0;
  if (threadIdx.x == 0) shared.num_listed = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < row.vocab_size; i += kDrawThreads) {
    const float logit = row.logits[i];
    if (logit > row.cut) atomicAdd(&shared.bins[row.bin(logit)], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t tokens = 0, bin = 0;
    while (bin < kBins && tokens + shared.bins[bin] <= kListTokens) tokens += shared.bins[bin++];
    shared.cut_bin = bin;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < row.vocab_size; i += kDrawThreads) {
    const float logit = row.logits[i];
    if (!(logit > row.cut) || row.bin(logit) >= shared.cut_bin) continue;
    const int32_t at = atomicAdd(&shared.num_listed, 1);
    shared.weights[at] = exp_of_negative(row.scaled(logit));
    shared.tokens[at] = i;
  }
  __syncthreads();
}

// The shortest run of likeliest tokens inside `within` whose measures (of a weight alone) sum up to
// `wanted`, or all of them if they do not.
template <typename Measure>
__device__ Cut shortest_run(const Row& row, const Cut& within, uint64_t wanted, Shared& shared,
                            Measure measure) {
  const auto at_least = [&](bool listed, uint32_t bits) {
    return sum_tokens(row, listed, shared, [&](float weight, int32_t token) {
      const uint32_t weight_bits = __float_as_uint(weight);
      return weight_bits >= bits && within.keeps(weight_bits, token) ? measure(weight)
                                                                     : uint64_t{0};
    });
  };
  const bool listed = at_least(true, 0) >= wanted;
  if (!listed && at_least(false, 0) < wanted) return within;
  uint32_t bits = 0;
  for (uint32_t bit = 1u << 29; bit > 0; bit >>= 1) {
    if (at_least(listed, bits | bit) >= wanted) bits |= bit;
  }
  // Tokens of that very weight: as many as are needed, lowest ids first.
  const uint64_t above = at_least(listed, bits + 1);
  const uint64_t one = measure(__uint_as_float(bits));
  const uint64_t ties = (wanted - above + one - 1) / one;
  const auto ties_up_to = [&](int32_t last) {
    return sum_tokens(row, listed, shared, [&](float weight, int32_t token) {
      const uint32_t weight_bits = __float_as_uint(weight);
      return weight_bits == bits && token <= last && within.keeps(weight_bits, token) ? uint64_t{1}
                                                                                      : uint64_t{0};
    });
  };
  int32_t last = 0;  // the lowest id up to which there are so many
  if (ties_up_to(INT32_MAX - 1) == ties)
    return {bits, within.bits == bits ? within.last_token : INT32_MAX};
  for (int32_t bit = 1 << 20; bit > 0; bit >>= 1) {
    if (ties_up_to(last + bit - 1) < ties) last += bit;
  }
  return {bits, last};
}

__device__ Cut find_cut(const Row& row, const SampleParams& params, Shared& shared) {
  Cut cut;
  const bool top_p = params.top_p < 1.0f;
  if (params.top_k > 0 || top_p) list_likeliest(row, shared);
  if (params.top_k > 0) {
    cut = shortest_run(row, cut, static_cast<uint64_t>(params.top_k), shared,
                       [](float) { return uint64_t{1}; });
  }
  if (top_p) {
    const uint64_t total = sum_tokens(row, false, shared, [&](float weight, int32_t token) {
      return cut.keeps(__float_as_uint(weight), token) ? whole(weight) : uint64_t{0};
    });
    const auto wanted = static_cast<uint64_t>(
        __dmul_rn(static_cast<double>(params.top_p), static_cast<double>(total)));
    cut = shortest_run(row, cut, wanted > 0 ? wanted : 1, shared,
                       [](float weight) { return whole(weight); });
  }
  if (params.min_p > 0 && __float_as_uint(params.min_p) > cut.bits)
    cut = {__float_as_uint(params.min_p), INT32_MAX};
  return cut;
}

// The first token, by id, at which the running sum of the kept weights exceeds `uniform` of their
// total. Each level cuts the range into one run a warp and goes on in the run that has the point.
__device__ int32_t draw(const Row& row, const Cut& cut, double uniform, int32_t likeliest,
                        Shared& shared) {
  const auto kept = [&](int32_t token) {
    const float weight = row.weight(token);
    return weight > 0 && cut.keeps(__float_as_uint(weight), token) ? whole(weight) : uint64_t{0};
  };
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t begin = 0, end = row.vocab_size;
  uint64_t point = 0;
  for (bool first = true; end - begin > 1; first = false) {
    const int32_t run = (end - begin + kWarps - 1) / kWarps;
    const int32_t run_begin = begin + warp * run;
    const int32_t run_end = min(run_begin + run, end);
    uint64_t sum = 0;
    for (int32_t i = run_begin + lane; i < run_end; i += 32) sum += kept(i);
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
    begin += w * run;
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
