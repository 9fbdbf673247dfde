#include "kernels/cuda/error.h"

namespace baton {

CudaError::CudaError(const char* op, cudaError_t error)
    : message_(std::string(op) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
               ")") {}

CudaError::CudaError(const char* op, const std::string& reason)
    : message_(std::string(op) + ": " + reason) {}

}  // namespace baton
