// What a product of few tokens is made of, for the kernels that compute them (skinny_gemm.h,
// stream_gemm.h). Own kernels, because such products are bound by reading the weights once:
// cuBLASLt reaches about four fifths of the memory's rate there and cannot start before the kernel
// before it has ended.
#pragma once

#include <cstdint>

#include "kernels/linear/gemm_epilogue.h"

namespace baton {

//   weight  device [rows, cols], the bits of its elements
//   x       device [num_tokens, cols], likewise
//   bias    float32 device [rows] or null
//   y       device [num_tokens, rows], row t at y + t * y_stride
// Types: gemm_epilogue.h. Alignment: 16 bytes. REQUIRES: small_gemm_takes().
struct SmallGemmArgs {
  const uint16_t* weight = nullptr;
  const uint16_t* x = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
  int64_t y_stride = 0;
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t num_tokens = 0;
  GemmEpilogue epilogue = GemmEpilogue::kStore;
};

// The kernels take their operands in stages of so many columns: rows of 128 bytes.
inline constexpr int32_t kGemmStageCols = 64;

// Whether they take the shape, for every number of tokens up to theirs.
constexpr bool small_gemm_takes(int64_t cols) {
  return cols % kGemmStageCols == 0;
}

}  // namespace baton
