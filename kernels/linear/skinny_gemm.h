// Matrix products of few tokens, which are bound by reading the weights once. Own kernels, because
// cuBLASLt reaches about four fifths of the memory's rate there, and because one order of additions
// for any number of tokens makes a row independent of its batch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/bf16.h"

namespace baton {

inline constexpr int32_t kSkinnyTokensMax = 64;

//   weight  bf16 device [rows, cols]
//   x       bf16 device [num_tokens, cols]
//   bias    float32 device [rows] or null
//   y       device [num_tokens, rows], row t at y + t * y_stride: float32 when `is_float`, else
//           bf16; added to when `accumulate`
// Alignment: 16 bytes. REQUIRES: cols a multiple of 64, num_tokens <= kSkinnyTokensMax, num_sms of
// the GPU.
struct SkinnyArgs {
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

// Whether the kernels take the shape, for every number of tokens up to kSkinnyTokensMax.
constexpr bool skinny_gemm_takes(int64_t rows, int64_t cols) {
  return cols % 64 == 0 && rows <= INT32_MAX && cols <= INT32_MAX;
}

// Raises the kernels' shared memory limits; once before the first product.
void prepare_skinny_gemm();

// Enqueues on `stream`. An element's sum is that of 8 slices of cols, each taken in order, added
// pairwise: the same whatever num_tokens is. The weights are read before the kernel waits for
// earlier ones (launch.h), so nothing may write weights in the same stream without a pause.
void skinny_gemm(const SkinnyArgs& args, int32_t num_sms, cudaStream_t stream);

}  // namespace baton
