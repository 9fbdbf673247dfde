// Eight elements, of which 16-bit ones are one 16-byte access of a thread, and the float32 values
// to compute with. Device code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/activation_types.h"

namespace baton {

constexpr int kVecElems = 8;

struct Vec8 {
  float v[kVecElems];
};

__device__ __forceinline__ float bf16_low(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float bf16_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Beyond f16's range: its largest value.
__device__ __forceinline__ uint32_t half_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ uint16_t bf16_bits(float x) {
  return static_cast<uint16_t>(bf16_pair(x, 0));
}
__device__ __forceinline__ uint16_t half_bits(float x) {
  return static_cast<uint16_t>(half_pair(x, 0));
}
// Infinity, which cuBLASLt's products give there, becomes f16's largest value too; NaN stays.
__device__ __forceinline__ float2 half_values(uint32_t pair) {
  const __half2 largest = __float2half2_rn(65504.0f);
  const __half2 values = *reinterpret_cast<const __half2*>(&pair);
  return __half22float2(__hmin2_nan(__hmax2_nan(values, __hneg2(largest)), largest));
}

__device__ __forceinline__ Vec8 expand(uint4 bits) {
  return {{bf16_low(bits.x), bf16_high(bits.x), bf16_low(bits.y), bf16_high(bits.y),
           bf16_low(bits.z), bf16_high(bits.z), bf16_low(bits.w), bf16_high(bits.w)}};
}
__device__ __forceinline__ Vec8 expand_half(uint4 bits) {
  const float2 a = half_values(bits.x), b = half_values(bits.y), c = half_values(bits.z),
               d = half_values(bits.w);
  return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
}
__device__ __forceinline__ uint4 to_bf16(const Vec8& x) {
  return make_uint4(bf16_pair(x.v[0], x.v[1]), bf16_pair(x.v[2], x.v[3]), bf16_pair(x.v[4], x.v[5]),
                    bf16_pair(x.v[6], x.v[7]));
}
__device__ __forceinline__ uint4 to_half(const Vec8& x) {
  return make_uint4(half_pair(x.v[0], x.v[1]), half_pair(x.v[2], x.v[3]), half_pair(x.v[4], x.v[5]),
                    half_pair(x.v[6], x.v[7]));
}

// REQUIRES: 16-byte aligned.
__device__ __forceinline__ Vec8 load8(const Bf16* p) {
  return expand(*reinterpret_cast<const uint4*>(p));
}
__device__ __forceinline__ Vec8 load8(const F16* p) {
  return expand_half(*reinterpret_cast<const uint4*>(p));
}
__device__ __forceinline__ Vec8 load8(const float* p) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ void store8(Bf16* p, const Vec8& x) {
  *reinterpret_cast<uint4*>(p) = to_bf16(x);
}
__device__ __forceinline__ void store8(F16* p, const Vec8& x) {
  *reinterpret_cast<uint4*>(p) = to_half(x);
}
__device__ __forceinline__ void store8(float* p, const Vec8& x) {
  reinterpret_cast<float4*>(p)[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
}

// The sum over all lanes whose ids differ in bits below `lanes` (a power of two), in a fixed order.
__device__ __forceinline__ float sum_lanes(float x, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

}  // namespace baton
