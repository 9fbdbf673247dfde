// The last step of a product of few tokens: a sum becomes an element of y. Device code only.
#pragma once

#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/small_gemm.h"

namespace baton {

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ void finish_one(const SmallGemmArgs& args, int token, int row,
                                           float sum) {
  if (row >= args.rows) return;
  if (args.bias != nullptr) sum += args.bias[row];
  const int64_t at = token * args.y_stride + row;
  if (args.is_float) {
    static_cast<float*>(args.y)[at] = sum;
    return;
  }
  auto* y = static_cast<__nv_bfloat16*>(args.y) + at;
  *y = __float2bfloat16_rn(args.accumulate ? __bfloat162float(*y) + sum : sum);
}

// Four rows at once; the same arithmetic. `whole`: rows and y_stride are multiples of 4.
__device__ __forceinline__ void finish_four(const SmallGemmArgs& args, bool whole, int token,
                                            int row, float4 sum) {
  if (!whole) {
    finish_one(args, token, row, sum.x);
    finish_one(args, token, row + 1, sum.y);
    finish_one(args, token, row + 2, sum.z);
    finish_one(args, token, row + 3, sum.w);
    return;
  }
  if (row >= args.rows) return;
  if (args.bias != nullptr) sum = sum + *reinterpret_cast<const float4*>(args.bias + row);
  const int64_t at = token * args.y_stride + row;
  if (args.is_float) {
    *reinterpret_cast<float4*>(static_cast<float*>(args.y) + at) = sum;
    return;
  }
  auto* y = reinterpret_cast<uint2*>(static_cast<Bf16*>(args.y) + at);
  if (args.accumulate) {
    const uint2 old = *y;
    sum = make_float4(bf16_low(old.x), bf16_high(old.x), bf16_low(old.y), bf16_high(old.y)) + sum;
  }
  *y = make_uint2(bf16_pair(sum.x, sum.y), bf16_pair(sum.z, sum.w));
}

}  // namespace baton
