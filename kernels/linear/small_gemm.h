// What a product of few tokens is made of, for the kernels that compute them (skinny_gemm.h,
// stream_gemm.h). Own kernels, because such products are bound by reading the weights once:
// cuBLASLt reaches about four fifths of the memory's rate there and cannot start before the kernel
// before it has ended.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace baton {

//   weight  bf16 device [rows, cols]
//   x       bf16 device [num_tokens, cols]
//   bias    float32 device [rows] or null
//   y       device [num_tokens, rows], row t at y + t * y_stride: float32 when `is_float`, else
//           bf16; added to when `accumulate`
// Alignment: 16 bytes. REQUIRES: small_gemm_takes().
struct SmallGemmArgs {
  const Bf16* weight = nullptr;
  const Bf16* x = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  int64_t y_stride = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t num_tokens = 0;
  bool is_float = false;
  bool accumulate = false;
};

// Whether the kernels take the shape, for every number of tokens up to theirs.
constexpr bool small_gemm_takes(int64_t rows, int64_t cols) {
  return cols % 64 == 0 && rows <= INT32_MAX && cols <= INT32_MAX;
}

}  // namespace baton
