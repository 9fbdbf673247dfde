// Decode attention: few rows a sequence, so the time is that of reading K and V once. Persistent
// CTAs draw items (part of a sequence, KV head) from the plan's queue. A producer warp copies tiles
// of 64 keys in bulk into a ring of stages; four consumer warps share each tile: a warp scores 16
// keys, then, with everybody's weights, sums its own part of head_dim.
#pragma once

#include "kernels/attention/attention_pages_map.h"
#include "kernels/attention/decode_consumer.cuh"
#include "kernels/attention/decode_producer.cuh"
#include "kernels/cuda/launch.h"

namespace baton {

template <int kDim>
__global__ void __launch_bounds__(kDecodeThreads, DecodeLayout<kDim>::kCtasPerSm)
    decode_attention_kernel(const __grid_constant__ AttentionParams params,
                            const __grid_constant__ DecodeMaps maps) {
  using Layout = DecodeLayout<kDim>;
  extern __shared__ unsigned char memory[];
  unsigned char* const shared = memory + (-shared_address(memory) & 1023);
  if (threadIdx.x == 0) {
    for (int s = 0; s < Layout::kStages; ++s) {
      const uint32_t full = shared_address(shared + Layout::kBarriersAt) + 16 * s;
      barrier_init(full, 1);
      barrier_init(full + 8, kDecodeConsumers);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == kDecodeConsumers / 32) {
    DecodeProducer<kDim>{params, maps, shared, lane}.run();
  } else {
    wait_for_previous_kernels();
    DecodeConsumer<kDim>{params, shared, warp, lane}.run();
  }
}

template <int kDim>
void launch_decode_attention(const AttentionParams& params, cudaStream_t stream) {
  using Layout = DecodeLayout<kDim>;
  const auto kernel = decode_attention_kernel<kDim>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Layout::kSharedBytes),
             "decode attention");
  DecodeMaps maps = {.box_tokens = kDecodeTile};
  while (params.page_tokens % maps.box_tokens != 0) maps.box_tokens /= 2;
  // Reads of 256 bytes, as prefill has them, cost 6 % of the bandwidth here.
  constexpr CUtensorMapL2promotion kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  maps.whole = pages_map(params, kDim, maps.box_tokens, kPromotion);
  maps.ends = pages_map(params, kDim, kDecodeEndBox, kPromotion);
  launch("decode attention",
         {.grid = dim3(static_cast<unsigned>(params.plan.num_sms * Layout::kCtasPerSm)),
          .block = dim3(kDecodeThreads),
          .shared_bytes = Layout::kSharedBytes},
         stream, kernel, params, maps);
}

}  // namespace baton
