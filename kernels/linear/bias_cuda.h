// Puts a bias where a matrix product will be added.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/bf16.h"

namespace baton {

//   bias  float32 device [rows]
//   y     bf16 device [num_tokens, rows], row t at y + t * y_stride: = bias, or += when `add`
void put_bias_cuda(const float* bias, int64_t rows, int32_t num_tokens, bool add, Bf16* y,
                   int64_t y_stride, cudaStream_t stream);

}  // namespace baton
