#include "kernels/cuda/device.h"

#include <cuda_runtime.h>

#include "base/status.h"

namespace baton {
namespace {

constexpr int kDriverMin = 13000;
constexpr int kCapability = 90;  // sm_90a code runs on this capability alone

std::string version_string(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The runtime's answer as a line for the user.
void start_check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw ConfigError(what + ": " + cudaGetErrorString(error));
}

}  // namespace

int32_t cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

CudaDevice open_cuda_device(int32_t index) {
  int driver = 0;
  start_check(cudaDriverGetVersion(&driver), "CUDA driver version");
  if (driver == 0) throw ConfigError("device cuda: no NVIDIA driver on this machine");
  if (driver < kDriverMin) {
    throw ConfigError("CUDA driver: got support for CUDA " + version_string(driver) +
                      ", want at least " + version_string(kDriverMin));
  }
  int count = 0;
  start_check(cudaGetDeviceCount(&count), "device cuda");
  if (index < 0 || index >= count) {
    throw ConfigError("device cuda:" + std::to_string(index) + ": this machine has " +
                      std::to_string(count) + " GPUs");
  }
  const std::string name = "device cuda:" + std::to_string(index);
  cudaDeviceProp properties;
  start_check(cudaGetDeviceProperties(&properties, index), name);
  CudaDevice device{.index = index,
                    .name = properties.name,
                    .capability = properties.major * 10 + properties.minor,
                    .num_sms = properties.multiProcessorCount};
  if (device.capability != kCapability) {
    throw ConfigError(name + ": " + device.name + " has compute capability " +
                      std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                      ", this build has code for 9.0 (Hopper) only");
  }
  start_check(cudaSetDevice(index), name);
  start_check(cudaFree(nullptr), name);  // creates the context here, where an error has a name
  return device;
}

}  // namespace baton
