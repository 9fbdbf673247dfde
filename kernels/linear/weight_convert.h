// Fills bf16 matrices on a GPU from other types, or with random values.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/activation_types.h"
#include "kernels/dtype.h"

namespace baton {

//   from  device [elems] of `dtype`, any but kBF16; whole blocks
//   to    bf16 device [elems], 16-byte aligned: dequantize()'s values, rounded to nearest. Where
//         one is NaN, both are, of unequal bits
void convert_to_bf16_cuda(Dtype dtype, const void* from, Bf16* to, int64_t elems,
                          cudaStream_t stream);

// Makes f16 of bf16 [elems] in place, 16-byte aligned, elems a multiple of 8. Exact from 2^-14 to
// f16's largest value, which larger ones become; smaller ones are within 2^-25.
void bf16_to_half_cuda(void* values, int64_t elems, cudaStream_t stream);

// Uniform values of the given standard deviation; element i depends on (seed, i) alone.
void fill_random_cuda(uint64_t seed, float spread, Bf16* to, int64_t elems, cudaStream_t stream);

}  // namespace baton
