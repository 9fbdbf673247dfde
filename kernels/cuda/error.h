// Errors of the CUDA runtime and driver. At run time a failed call or launch throws CudaError with
// the op's name: the context is then lost for good (errors are sticky), the engine reports the step
// as failed and the worker ends. At start-up the same errors become a ConfigError where the user
// can do something about them (device.h, memory.h).
#pragma once

#include <cuda_runtime.h>

#include <exception>
#include <string>

namespace baton {

class CudaError : public std::exception {
 public:
  // "rope_kv: an illegal memory access was encountered (cudaErrorIllegalAddress)"
  CudaError(const char* op, cudaError_t error);
  CudaError(const char* op, const std::string& reason);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

inline void cuda_check(cudaError_t error, const char* op) {
  if (error != cudaSuccess) [[unlikely]]
    throw CudaError(op, error);
}

// After each launch: reports a bad launch and any error that earlier work has left behind. Takes
// well under a microsecond and does not synchronise.
inline void check_launch(const char* op) {
  cuda_check(cudaGetLastError(), op);
}

}  // namespace baton
