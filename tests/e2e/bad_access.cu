#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/error.h"
#include "tests/e2e/bad_access.h"

namespace baton {
namespace {

__global__ void write_kernel(uint32_t* where) {
  *where = 1;
}

}  // namespace

void access_badly(int index) {
  cuda_check(cudaSetDevice(index), "bad access");
  write_kernel<<<1, 1>>>(reinterpret_cast<uint32_t*>(uintptr_t{4}));
}

}  // namespace baton
