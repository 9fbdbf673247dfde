// The GPU of a worker: found, checked once at start-up and made current.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

struct CudaDevice {
  int32_t index = 0;
  std::string name;        // "NVIDIA H200"
  int32_t capability = 0;  // 90: major * 10 + minor
  int32_t num_sms = 0;
};

// Number of usable GPUs; 0 where there is no driver. Never throws.
int32_t cuda_device_count();

// Makes GPU `index` the calling thread's and creates its context. Throws ConfigError, one line: no
// driver, no such GPU, a driver older than CUDA 13.0, a GPU that this build has no code for.
CudaDevice open_cuda_device(int32_t index);

}  // namespace baton
