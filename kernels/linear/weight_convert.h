// Fills bf16 matrices on a GPU from other float types, or with random values.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/dtype.h"

namespace baton {

//   from  device [elems] of `dtype`: kF16 or kF32
//   to    bf16 device [elems], rounded to nearest
void convert_to_bf16_cuda(Dtype dtype, const void* from, Bf16* to, int64_t elems,
                          cudaStream_t stream);

// Uniform values of the given standard deviation; element i depends on (seed, i) alone.
void fill_random_cuda(uint64_t seed, float spread, Bf16* to, int64_t elems, cudaStream_t stream);

}  // namespace baton
