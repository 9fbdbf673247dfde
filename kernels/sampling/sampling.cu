// Two kernels: many blocks a row find its largest logit, then one block a sample draws. Everything
// that decides which token comes out is a comparison of floats or a sum of whole numbers, so it
// does not depend on the order in which threads come; floats are rounded as on CPU (no fused
// multiply-add).
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sampling/sample_cut.cuh"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

constexpr int kParts = 16;  // of a row, in the first kernel
constexpr int kScanThreads = 256;
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

// The first token, by id, at which the running sum of the kept weights exceeds `uniform` of their
// total. Each level cuts the range into one run a warp and goes on in the run that has the point.
__device__ int32_t draw(const DrawRow& row, const SampleCut& cut, double uniform, int32_t likeliest,
                        DrawShared& shared) {
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
  __shared__ DrawShared shared;
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
    const DrawRow row{logits, args.vocab_size, largest, __fsub_rn(largest, params.cut_nats),
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
