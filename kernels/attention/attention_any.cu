#include "base/check.h"
#include "kernels/attention/attention_any_cuda.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/vec8.cuh"

namespace baton {
namespace {

constexpr int kWarps = 4;
constexpr int kLaneDims = kAttentionHeadDimMax / 32;
constexpr int kKeys = 32;  // at a time: one a lane

__device__ float warp_max(float x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

// The row of K (side 0) or V (1) of a position.
__device__ const Bf16* kv_row(const PagedLayer& kv, const int32_t* block_table, int position,
                              int side, int kv_head) {
  const int64_t page = block_table[position / kv.page_tokens];
  const int64_t row =
      int64_t{side * kv.num_kv_heads + kv_head} * kv.page_tokens + position % kv.page_tokens;
  return reinterpret_cast<const Bf16*>(kv.base + page * kv.page_bytes + kv.layer_offset) +
         row * kv.head_dim;
}

// Softmax over keys in runs of 32, in order; a lane has one key's score, then 32nds of the output.
struct RunningSoftmax {
  float largest = -INFINITY;
  float sum = 0;
  float out[kLaneDims] = {};
};

__device__ float score(const AttentionArgs<Bf16>& args, const float* q, const Bf16* key) {
  float sum = 0;
  for (int d = 0; d < args.kv.head_dim; ++d) sum += q[d] * bf16_low(key[d].bits);
  sum *= args.scale;
  return args.soft_cap > 0 ? args.soft_cap * tanhf(sum / args.soft_cap) : sum;
}

__device__ void add_keys(const AttentionArgs<Bf16>& args, const AttentionSequence& sequence,
                         const float* q, int first, int last, int kv_head, RunningSoftmax& state) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float mine = -INFINITY;
  if (first + lane <= last) {
    mine = score(args, q, kv_row(args.kv, sequence.block_table, first + lane, 0, kv_head));
  }
  const float largest = fmaxf(state.largest, warp_max(mine));
  const float shrink = __expf(state.largest - largest);  // 0 the first time
  const float weight = __expf(mine - largest);           // 0 for lanes without a key
  state.largest = largest;
  state.sum = state.sum * shrink + sum_lanes(weight, 32);
  for (float& out : state.out) out *= shrink;
  for (int key = first; key <= last; ++key) {
    const float share = __shfl_sync(0xffffffffu, weight, key - first);
    const Bf16* value = kv_row(args.kv, sequence.block_table, key, 1, kv_head);
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) {
      const int d = i * 32 + lane;
      if (d < args.kv.head_dim) state.out[i] += share * bf16_low(value[d].bits);
    }
  }
}

// A block takes one query head of one sequence, a warp one token of it after the other.
__global__ void attention_any_kernel(AttentionArgs<Bf16> args) {
  __shared__ float queries[kWarps][kAttentionHeadDimMax];
  wait_for_previous_kernels();
  const AttentionSequence sequence = args.batch.sequences[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y), dim = args.kv.head_dim;
  const int kv_head = head / (args.num_heads / args.kv.num_kv_heads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* const q = queries[warp];
  // A sequence that only fills up a graph's batch has one row, and nothing in it.
  const int rows = sequence.num_tokens > 0 ? sequence.num_tokens : 1;
  for (int token = warp; token < rows; token += kWarps) {
    const int64_t row = sequence.row + token;
    for (int d = lane; d < dim; d += 32) {
      q[d] = bf16_low(args.q[row * args.q_stride + head * dim + d].bits);
    }
    __syncwarp();
    RunningSoftmax state;
    const int position = sequence.first_pos + token;
    const int begin = args.window > 0 ? max(0, position - args.window + 1) : 0;
    const int end = sequence.num_tokens > 0 ? position + 1 : begin;
    // Runs start at absolute positions: chunking does not change the order of additions.
    for (int run = begin / kKeys * kKeys; run < end; run += kKeys) {
      add_keys(args, sequence, q, max(run, begin), min(run + kKeys, end) - 1, kv_head, state);
    }
    const float scale = state.sum > 0 ? 1 / state.sum : 0;
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) {
      const int d = i * 32 + lane;
      if (d >= dim) break;
      args.y[(row * args.num_heads + head) * dim + d] = {bf16_bits(state.out[i] * scale)};
    }
    __syncwarp();
  }
}

}  // namespace

void attention_any_cuda(const AttentionArgs<Bf16>& args, cudaStream_t stream) {
  CHECK_LE(args.kv.head_dim, kAttentionHeadDimMax) << "attention";
  launch("attention",
         {.grid = dim3(static_cast<unsigned>(args.batch.num_sequences),
                       static_cast<unsigned>(args.num_heads)),
          .block = dim3(kWarps * 32)},
         stream, attention_any_kernel, args);
}

}  // namespace baton
