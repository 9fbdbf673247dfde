// Launches kernels. Our kernels form a chain in which each may start while the one before it still
// runs (programmatic dependent launch): blocks get their places and load what does not depend on
// earlier kernels, then wait_for_previous_kernels() (ptx.cuh). RULE: a kernel launched with
// `early_start` waits there before it touches anything that an earlier kernel writes or reads.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/cuda/error.h"

namespace baton {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;  // dynamic
  int32_t cluster = 1;       // blocks a cluster, along x
  bool early_start = true;
};

// Throws CudaError{op}. An empty grid is no launch.
template <typename... Params, typename... Args>
void launch(const char* op, const LaunchShape& shape, cudaStream_t stream,
            void (*kernel)(Params...), Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0) return;
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  if (shape.early_start) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  cuda_check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), op);
  check_launch(op);
}

}  // namespace baton
