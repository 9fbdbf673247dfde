#include "kernels/cuda/memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "base/status.h"
#include "kernels/cuda/error.h"

namespace baton {
namespace {

size_t at_least_one(int64_t bytes) {
  return static_cast<size_t>(std::max<int64_t>(bytes, 1));
}

}  // namespace

std::byte* DeviceMemory::allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, at_least_one(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: whoever catches this can go on
    size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw ConfigError("GPU memory: got " + std::to_string(free >> 20) + " of " +
                      std::to_string(total >> 20) + " MiB free, want " +
                      std::to_string((bytes >> 20) + 1) + " MiB more");
  }
  cuda_check(error, "cudaMalloc");
  return static_cast<std::byte*>(data);
}

void DeviceMemory::free(std::byte* data) {
  cudaFree(data);
}

std::byte* PinnedMemory::allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, at_least_one(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw ConfigError("pinned host memory: none left for " + std::to_string((bytes >> 20) + 1) +
                      " MiB");
  }
  cuda_check(error, "cudaMallocHost");
  return static_cast<std::byte*>(data);
}

void PinnedMemory::free(std::byte* data) {
  cudaFreeHost(data);
}

}  // namespace baton
