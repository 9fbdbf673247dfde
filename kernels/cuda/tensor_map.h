// Tensors of 16-bit elements in device memory as the GPU's copy engine sees them, for kernels that
// copy boxes of them (tensor_copy of pipeline.cuh). Boxes are 64 elements wide and land in shared
// memory as rows of 128 bytes with the 128-byte swizzle; what lies outside of the tensor arrives as
// zeros.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>

namespace baton {

//   data           16-byte aligned
//   sizes          elements of each dimension, the innermost first
//   strides_bytes  of the dimensions but the innermost; multiples of 16
//   box            elements of each dimension of a copy; box[0] is 64
//   promotion      how much L2 reads at once
// Throws CudaError{op}.
CUtensorMap make_tensor_map(const char* op, const void* data, std::span<const uint64_t> sizes,
                            std::span<const uint64_t> strides_bytes, std::span<const uint32_t> box,
                            CUtensorMapL2promotion promotion);

}  // namespace baton
