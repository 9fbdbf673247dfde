#include "kernels/cuda/memory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "base/status.h"
#include "kernels/cuda/error.h"

namespace baton {

DeviceBuffer::DeviceBuffer(int64_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: whoever catches this can go on
    size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw ConfigError("GPU memory: got " + std::to_string(free) + " of " + std::to_string(total) +
                      " bytes free, want " + std::to_string(bytes) + " more");
  }
  cuda_check(error, "cudaMalloc");
  data_ = static_cast<std::byte*>(data);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedBuffer::PinnedBuffer(int64_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  const size_t wanted = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const cudaError_t error = cudaMallocHost(&data, wanted);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw ConfigError("pinned host memory: none left for " + std::to_string(bytes) + " bytes");
  }
  cuda_check(error, "cudaMallocHost");
  data_ = static_cast<std::byte*>(data);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace baton
