// Two kernels: many blocks a row find its largest logit (and, for rows that are changed before they
// are sampled, change them), then one block a sample draws. Everything that decides which token
// comes out is a comparison of floats or a sum of whole numbers, so it does not depend on the order
// in which threads come; floats are rounded as on CPU (no fused multiply-add).
#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sampling/best_token.cuh"
#include "kernels/sampling/row_edits.cuh"
#include "kernels/sampling/sample_cut.cuh"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

constexpr int kParts = 16;  // of a row, in the first kernel
static_assert(kSampleVocabMax == 1 << kTokenBits);
// The likeliest tokens of a part are all in the shares of as many threads.
constexpr int kListMax = kTopTokensMax * (kSampleVocabMax / kParts / kScanThreads);

// What a part of a row has.
struct Partial {
  BestToken raw;
  BestToken edited;  // only with edits
  float exp_sum;     // of exp(x - raw.value) over the part; only with log-probabilities
  float unused;
};
struct PartTop {
  uint64_t keys[kTopTokensMax];  // in order, see order_key
};

__device__ Partial* partials_of(const SampleArgs& args, int sample) {
  return reinterpret_cast<Partial*>(args.scratch) + sample * kParts;
}
// Behind all partials.
__device__ PartTop* tops_of(const SampleArgs& args, int sample) {
  return reinterpret_cast<PartTop*>(partials_of(args, args.num_samples)) + sample * kParts;
}

struct ScanShared {
  union {
    alignas(16) float tile[kEditTokens];
    uint64_t list[kListMax];
  };
  BestToken bests[kScanWarps];
  float sums[kScanWarps];
  int32_t num_listed;
};

struct RowPart {
  const float* row;
  int begin, end;
  bool vectors;  // see visit_share
};

// What plain greedy rows do not need is kept out of line, so that theirs is a short kernel with few
// registers.
struct PartBest {
  BestToken raw, edited;  // of the thread's share
};
__device__ __noinline__ PartBest edit_part(RowPart part, const RowEdits& edits, float* tile) {
  PartBest best{BestToken::none(), BestToken::none()};
  const auto see_raw = [&](float logit, int token) { best.raw.take({logit, token}); };
  const auto see_edited = [&](float logit, int token) { best.edited.take({logit, token}); };
  if (part.vectors) {
    edit_tokens<4>(part.row, edits, part.begin, part.end, tile, see_raw, see_edited);
  } else {
    edit_tokens<1>(part.row, edits, part.begin, part.end, tile, see_raw, see_edited);
  }
  return best;
}

// In thread 0.
__device__ __noinline__ float exp_sum_of_block(RowPart part, float largest, ScanShared& shared) {
  largest = largest == -INFINITY ? 0.0f : largest;
  float sum = 0;
  visit_share(part.row, part.begin, part.end, part.vectors,
              [&](float logit, int) { sum += expf(logit - largest); });
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) shared.sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kScanWarps; ++w) sum += shared.sums[w];
  return sum;
}

// The `count` likeliest tokens of the part. None of them comes after the count-th of the threads'
// likeliest, so only threads that have one before it look at their share again.
__device__ __noinline__ void list_top(RowPart part, int count, ScanShared& shared, PartTop* top) {
  BestToken own = BestToken::none();
  visit_share(part.row, part.begin, part.end, part.vectors, [&](float logit, int token) {
    own.take({logit, token});
  });
  if (threadIdx.x == 0) shared.num_listed = 0;
  const uint64_t limit = largest_key(order_key(own), count);
  if (order_key(own) >= limit) {
    visit_share(part.row, part.begin, part.end, part.vectors, [&](float logit, int token) {
      if (isnan(logit) || order_key({logit, token}) < limit) return;
      shared.list[atomicAdd(&shared.num_listed, 1)] = order_key({logit, token});
    });
  }
  __syncthreads();
  const int num_listed = shared.num_listed;
  rank_keys(shared.list, num_listed, count, [&](int at, uint64_t key) { top->keys[at] = key; });
  for (int at = num_listed + threadIdx.x; at < count; at += kScanThreads) top->keys[at] = 0;
}

__global__ void __launch_bounds__(kScanThreads, 8) scan_rows_kernel(const SampleArgs args) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  __shared__ ScanShared shared;
  const SampleParams& params = args.params[blockIdx.y];
  // Whole words of masks.
  const int part_tokens = ((args.vocab_size + kParts - 1) / kParts + 31) / 32 * 32;
  const int begin = min(static_cast<int>(blockIdx.x) * part_tokens, args.vocab_size);
  const RowPart part{.row = args.logits + static_cast<int64_t>(params.row) * args.vocab_size,
                     .begin = begin,
                     .end = min(begin + part_tokens, args.vocab_size),
                     .vectors = args.vocab_size % 4 == 0};

  PartBest own{BestToken::none(), BestToken::none()};
  if (params.edits != nullptr) {
    own = edit_part(part, *params.edits, shared.tile);
  } else {
    for (int i = part.begin + threadIdx.x; i < part.end; i += kScanThreads)
      own.raw.take({part.row[i], i});
  }
  Partial partial{.raw = best_of_block(own.raw, shared.bests)};
  if (params.edits != nullptr) partial.edited = best_of_block(own.edited, shared.bests);
  if (params.num_top >= 0) partial.exp_sum = exp_sum_of_block(part, partial.raw.value, shared);
  if (params.num_top > 0)
    list_top(part, params.num_top, shared, tops_of(args, blockIdx.y) + blockIdx.x);
  if (threadIdx.x == 0) partials_of(args, blockIdx.y)[blockIdx.x] = partial;
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

// Of a raw row that has `largest` and of which the parts tell. NaN shows.
__device__ double log_total_of(const Partial* partials, float largest) {
  double sum = 0;
  for (int i = 0; i < kParts; ++i) {
    const float value = partials[i].raw.value;
    sum += partials[i].exp_sum *
           exp(static_cast<double>((value == -INFINITY ? 0.0f : value) - largest));
  }
  return largest + log(sum);
}

__device__ float logprob_of(float logit, double log_total) {
  const auto value = static_cast<float>(logit - log_total);
  return isnan(value) ? value : value > kLogprobFloor ? fminf(value, 0.0f) : kLogprobFloor;
}

// From the parts' likeliest tokens those of the row; code of the whole block.
__device__ void merge_tops(const PartTop* parts, int count, double log_total, uint64_t* list,
                           SampleResult* tops) {
  for (int i = threadIdx.x; i < kParts * count; i += kDrawThreads)
    list[i] = parts[i / count].keys[i % count];
  __syncthreads();
  rank_keys(list, kParts * count, count, [&](int at, uint64_t key) {
    const BestToken best = token_of(key);
    tops[at] = {best.token, logprob_of(best.value, log_total)};
  });
}

__global__ void __launch_bounds__(kDrawThreads) draw_kernel(const SampleArgs args) {
  __shared__ DrawShared shared;
  __shared__ uint64_t merged[kParts * kTopTokensMax];
  __shared__ double log_total;
  let_next_kernel_start();
  wait_for_previous_kernels();
  const SampleParams params = args.params[blockIdx.x];
  const Partial* partials = partials_of(args, blockIdx.x);
  BestToken raw = BestToken::none();
  for (int i = 0; i < kParts; ++i) raw.take(partials[i].raw);
  const float* logits = args.logits + static_cast<int64_t>(params.row) * args.vocab_size;
  const float* drawn = logits;
  BestToken best = raw;
  if (params.edits != nullptr) {
    best = BestToken::none();
    for (int i = 0; i < kParts; ++i) best.take(partials[i].edited);
    drawn = params.edits->edited;
  }

  int32_t token = best.token;
  if (!isfinite(best.value)) {
    // Only the raw row can say that the model is broken; a changed one is the request's doing.
    token = isfinite(raw.value) ? raw.token : -1;
  } else if (params.greedy == 0) {
    const DrawRow row{drawn, args.vocab_size, best.value, __fsub_rn(best.value, params.cut_nats),
                      params.inverse_temperature};
    token = draw(row, find_cut(row, params, shared), params.uniform, best.token, shared);
  }
  float logprob = 0;
  if (token >= 0 && params.num_top >= 0) {
    if (threadIdx.x == 0) log_total = log_total_of(partials, raw.value);
    __syncthreads();
    logprob = logprob_of(logits[token], log_total);
    merge_tops(tops_of(args, blockIdx.x), params.num_top, log_total, merged,
               args.tops + static_cast<int64_t>(blockIdx.x) * kTopTokensMax);
  }
  if (threadIdx.x == 0) args.results[blockIdx.x] = {token, logprob};
}

__global__ void count_tokens_kernel(const TokenCount* entries, int32_t num_entries,
                                    int32_t* counts) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < num_entries) counts[entries[i].token] = entries[i].count;
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
  return int64_t{num_samples} * kParts * static_cast<int64_t>(sizeof(Partial) + sizeof(PartTop));
}

void sample_cuda(const SampleArgs& args, cudaStream_t stream) {
  CHECK_LE(args.vocab_size, kSampleVocabMax) << "tokens of a row";
  const auto samples = static_cast<unsigned>(args.num_samples);
  launch("sample", {.grid = dim3(kParts, samples), .block = dim3(kScanThreads)}, stream,
         scan_rows_kernel, args);
  launch("sample", {.grid = dim3(samples), .block = dim3(kDrawThreads)}, stream, draw_kernel, args);
}

void build_counts_cuda(const TokenCount* entries, int32_t num_entries, int32_t* counts,
                       int32_t vocab_size, cudaStream_t stream) {
  constexpr int kThreads = 256;
  cuda_check(cudaMemsetAsync(counts, 0, static_cast<size_t>(vocab_size) * sizeof(int32_t), stream),
             "build_counts");
  launch("build_counts",
         {.grid = dim3(static_cast<unsigned>((num_entries + kThreads - 1) / kThreads)),
          .block = dim3(kThreads)},
         stream, count_tokens_kernel, entries, num_entries, counts);
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
