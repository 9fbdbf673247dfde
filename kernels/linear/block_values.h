// The values of GGUF's block formats, eight at a time, for a GPU thread; kernels/dtype.h has the
// reference and kernels/dtype.cc says how the blocks are laid out. Here the same operations run in
// the same order, none contracted, so that a GPU gives the reference's bits. They compile for the
// host too, where their indices are tested.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cpu/half.h"
#include "kernels/dtype.h"

namespace baton {

__host__ __device__ inline float mul_rn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

__host__ __device__ inline float add_rn(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

__host__ __device__ inline float half_value(const uint8_t* p) {
  const auto bits = static_cast<uint16_t>(p[0] | p[1] << 8);
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  return float_from_half(bits);
#endif
}

// Q4_0, Q4_1, Q5_0, Q5_1.
template <bool kHasMin, bool kHasHigh>
__host__ __device__ inline void values_4_5(const uint8_t* block, int first, float* values) {
  constexpr int kOffset = kHasMin ? 0 : (kHasHigh ? 16 : 8);
  const float d = half_value(block);
  const float m = kHasMin ? half_value(block + 2) : 0;
  const uint8_t* high = block + (kHasMin ? 4 : 2);
  const uint8_t* low = high + (kHasHigh ? 4 : 0) + first % 16;
  const int shift = first < 16 ? 0 : 4;
  const int fifth_bits = kHasHigh ? high[first / 8] : 0;
  for (int i = 0; i < 8; ++i) {
    const int q = (low[i] >> shift & 15) | (fifth_bits >> i & 1) << 4;
    values[i] = add_rn(mul_rn(d, static_cast<float>(q - kOffset)), m);
  }
}

__host__ __device__ inline void values_q8_0(const uint8_t* block, int first, float* values) {
  const float d = half_value(block);
  for (int i = 0; i < 8; ++i) {
    values[i] = mul_rn(d, static_cast<float>(static_cast<int8_t>(block[2 + first + i])));
  }
}

// Q4_K, Q5_K.
template <bool kHasHigh>
__host__ __device__ inline void values_k(const uint8_t* block, int first, float* values) {
  const int sub = first / 32, in_sub = first % 32;
  const uint8_t* scales = block + 4;
  int scale = scales[sub % 4] & 63, min = scales[sub % 4 + 4] & 63;
  if (sub >= 4) {
    scale = (scales[sub + 4] & 15) | (scales[sub - 4] >> 6) << 4;
    min = (scales[sub + 4] >> 4) | (scales[sub] >> 6) << 4;
  }
  const float step = mul_rn(half_value(block), static_cast<float>(scale));
  const float base = mul_rn(half_value(block + 2), static_cast<float>(min));
  const uint8_t* high = block + 16 + in_sub;
  const uint8_t* low = block + 16 + (kHasHigh ? 32 : 0) + sub / 2 * 32 + in_sub;
  const int shift = sub % 2 * 4;
  for (int i = 0; i < 8; ++i) {
    const int fifth_bit = kHasHigh ? high[i] >> sub & 1 : 0;
    const int q = (low[i] >> shift & 15) | fifth_bit << 4;
    values[i] = add_rn(mul_rn(step, static_cast<float>(q)), -base);
  }
}

__host__ __device__ inline void values_q6_k(const uint8_t* block, int first, float* values) {
  const int half = first / 128, quarter = first % 128 / 32;
  const uint8_t* low = block + half * 64 + quarter % 2 * 32 + first % 32;
  const uint8_t* high = block + 128 + half * 32 + first % 32;
  const auto scale = static_cast<int8_t>(block[192 + first / 16]);
  const float step = mul_rn(half_value(block + 208), static_cast<float>(scale));
  const int shift = quarter < 2 ? 0 : 4;
  for (int i = 0; i < 8; ++i) {
    const int q = (low[i] >> shift & 15) | (high[i] >> (2 * quarter) & 3) << 4;
    values[i] = mul_rn(step, static_cast<float>(q - 32));
  }
}

// Elements [first, first + 8) of a block; `first` is a multiple of 8.
template <Dtype dtype>
__host__ __device__ inline void block_values(const uint8_t* block, int first, float* values) {
  if constexpr (dtype == Dtype::kQ4_0) {
    values_4_5<false, false>(block, first, values);
  } else if constexpr (dtype == Dtype::kQ4_1) {
    values_4_5<true, false>(block, first, values);
  } else if constexpr (dtype == Dtype::kQ5_0) {
    values_4_5<false, true>(block, first, values);
  } else if constexpr (dtype == Dtype::kQ5_1) {
    values_4_5<true, true>(block, first, values);
  } else if constexpr (dtype == Dtype::kQ8_0) {
    values_q8_0(block, first, values);
  } else if constexpr (dtype == Dtype::kQ4_K) {
    values_k<false>(block, first, values);
  } else if constexpr (dtype == Dtype::kQ5_K) {
    values_k<true>(block, first, values);
  } else {
    static_assert(dtype == Dtype::kQ6_K);
    values_q6_k(block, first, values);
  }
}

// `call.template operator()<dtype>()` for the block format `dtype`.
template <typename Call>
void with_block_format(Dtype dtype, const Call& call) {
  switch (dtype) {
    case Dtype::kQ4_0:
      return call.template operator()<Dtype::kQ4_0>();
    case Dtype::kQ4_1:
      return call.template operator()<Dtype::kQ4_1>();
    case Dtype::kQ5_0:
      return call.template operator()<Dtype::kQ5_0>();
    case Dtype::kQ5_1:
      return call.template operator()<Dtype::kQ5_1>();
    case Dtype::kQ8_0:
      return call.template operator()<Dtype::kQ8_0>();
    case Dtype::kQ4_K:
      return call.template operator()<Dtype::kQ4_K>();
    case Dtype::kQ5_K:
      return call.template operator()<Dtype::kQ5_K>();
    case Dtype::kQ6_K:
      return call.template operator()<Dtype::kQ6_K>();
    case Dtype::kF32:
    case Dtype::kF16:
    case Dtype::kBF16:
      return;
  }
}

}  // namespace baton
