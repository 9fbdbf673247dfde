// Puts a bias where a matrix product will be added.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/linear/gemm_epilogue.h"

namespace baton {

//   bias  float32 device [rows]
//   y     device [num_tokens, rows], row t at y + t * y_stride, of the epilogue's type: = bias,
//         += bias for kAdd
void put_bias_cuda(const float* bias, int64_t rows, int32_t num_tokens, GemmEpilogue epilogue,
                   void* y, int64_t y_stride, cudaStream_t stream);

}  // namespace baton
