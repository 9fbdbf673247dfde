// The last step of a product of few tokens: a sum becomes an element of y. Device code only.
#pragma once

#include "kernels/cuda/vec8.cuh"
#include "kernels/linear/small_gemm.h"

namespace baton {

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Four elements are added to where they lie: no thread waits for what is there. As nobody else adds
// to them, the order of additions is that of the kernels. (What is below the normal range becomes
// 0.)
__device__ __forceinline__ void add_at(float* y, float4 sum) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(y)),
               "f"(sum.x), "f"(sum.y), "f"(sum.z), "f"(sum.w)
               : "memory");
}

__device__ __forceinline__ void finish_one(const SmallGemmArgs& args, int token, int row,
                                           float sum) {
  if (row >= args.rows) return;
  if (args.bias != nullptr) sum += args.bias[row];
  const int64_t at = token * args.y_stride + row;
  if (args.epilogue == GemmEpilogue::kStore) {
    static_cast<uint16_t*>(args.y)[at] = half_bits(sum);
    return;
  }
  float* y = static_cast<float*>(args.y) + at;
  *y = args.epilogue == GemmEpilogue::kAdd ? *y + sum : sum;
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
  if (args.epilogue == GemmEpilogue::kStore) {
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(args.y) + at) =
        make_uint2(half_pair(sum.x, sum.y), half_pair(sum.z, sum.w));
    return;
  }
  float* y = static_cast<float*>(args.y) + at;
  if (args.epilogue == GemmEpilogue::kAdd) {
    add_at(y, sum);
  } else {
    *reinterpret_cast<float4*>(y) = sum;
  }
}

}  // namespace baton
