// Prefill attention for Hopper's tensor cores: 128 rows (token, query head of the group) of a KV
// head a CTA. A producer warp copies K and V, page by page, in tiles of 128 keys into a ring (of 64
// where head_dim is 256: q fills shared memory and the sums fill the registers); two consumer
// warpgroups own 64 rows each and take turns at the tensor cores, so that one multiplies while the
// other computes weights; inside a warpgroup the scores of the next tile are multiplied together
// with the values of this one (schedule of FlashAttention-3, Shah et al. 2024).
#pragma once

#include "kernels/attention/attention_pages_map.h"
#include "kernels/attention/prefill_consumer.cuh"
#include "kernels/attention/prefill_producer.cuh"
#include "kernels/cuda/launch.h"

namespace baton {

template <int kDim>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    prefill_attention_kernel(const __grid_constant__ PrefillParams params,
                             const __grid_constant__ CUtensorMap map) {
  using Layout = PrefillLayout<kDim>;
  extern __shared__ unsigned char memory[];
  const PrefillShared<kDim> shared = {(shared_address(memory) + 1023) & ~1023u};
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2 * Layout::kStages; ++s) {
      barrier_init(shared.keys_full(s), 1);
      barrier_init(shared.empty(shared.keys_full(s)), 2 * kWarpgroupThreads / 32);
    }
    for (int slot = 0; slot < 2; ++slot) {
      barrier_init(shared.item_full(slot), 1);
      barrier_init(shared.empty(shared.item_full(slot)), 2 * kWarpgroupThreads + kQLoaders);
      barrier_init(shared.q_full(slot), kQLoaders);
      barrier_init(shared.empty(shared.q_full(slot)), 2 * kWarpgroupThreads / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  wait_for_previous_kernels();
  const int32_t warpgroup = static_cast<int32_t>(threadIdx.x) / kWarpgroupThreads;
  if (warpgroup == 0) {
    give_up_registers<40>();
    if (threadIdx.x < 32) {
      PrefillProducer<kDim>{params, map, shared, static_cast<int32_t>(threadIdx.x)}.run();
    } else {
      PrefillQLoader<kDim>{params.attention, shared, static_cast<int32_t>(threadIdx.x) - 32}.run();
    }
  } else {
    take_registers<232>();
    PrefillConsumer<kDim>{params.attention, shared, warpgroup - 1,
                          static_cast<int32_t>(threadIdx.x) % kWarpgroupThreads}
        .run();
  }
}

template <int kDim>
void launch_prefill_attention(const AttentionParams& params, cudaStream_t stream) {
  using Layout = PrefillLayout<kDim>;
  const auto kernel = prefill_attention_kernel<kDim>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Layout::kSharedBytes),
             "prefill attention");
  int32_t box_tokens = Layout::kTile;
  while (params.page_tokens % box_tokens != 0) box_tokens /= 2;
  launch("prefill attention",
         {.grid = dim3(static_cast<unsigned>(params.plan.num_sms)),
          .block = dim3(kPrefillThreads),
          .shared_bytes = Layout::kSharedBytes},
         stream, kernel, PrefillParams{params, box_tokens},
         pages_map(params, kDim, box_tokens, CU_TENSOR_MAP_L2_PROMOTION_L2_256B));
}

}  // namespace baton
