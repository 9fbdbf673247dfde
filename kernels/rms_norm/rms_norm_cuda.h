// RMS norm on a GPU. Contract: rms_norm.h; only enqueues on `stream`. cols and strides are
// multiples of 8, pointers 16-byte aligned, cols <= kRmsNormColsMax. Sums in float32 in an order
// that depends on cols alone. What exceeds f16 becomes its largest value.
#pragma once

#include <cuda_runtime.h>

#include "kernels/activation_types.h"
#include "kernels/rms_norm/rms_norm.h"

namespace baton {

inline constexpr int32_t kRmsNormColsMax = 32 << 10;

void rms_norm_cuda(const RmsNormArgs<float, F16>& args, cudaStream_t stream);

}  // namespace baton
