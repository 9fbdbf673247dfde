#include "kernels/cuda/driver.h"

#include <cuda_runtime.h>

#include <string>

#include "base/status.h"
#include "kernels/cuda/error.h"

namespace baton {
namespace {

template <typename F>
void look_up(const char* name, F* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult state = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, CUDART_VERSION, cudaEnableDefault, &state);
  if (error != cudaSuccess || state != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    throw ConfigError("CUDA driver: it lacks " + std::string(name) + ", want CUDA 13.0 or newer");
  }
  *function = reinterpret_cast<F>(found);
}

}  // namespace

CudaDriver load_cuda_driver() {
  CudaDriver driver{};
  look_up("cuMemAddressReserve", &driver.mem_address_reserve);
  look_up("cuMemAddressFree", &driver.mem_address_free);
  look_up("cuMemCreate", &driver.mem_create);
  look_up("cuMemRelease", &driver.mem_release);
  look_up("cuMemMap", &driver.mem_map);
  look_up("cuMemUnmap", &driver.mem_unmap);
  look_up("cuMemSetAccess", &driver.mem_set_access);
  look_up("cuMemExportToShareableHandle", &driver.mem_export);
  look_up("cuMemImportFromShareableHandle", &driver.mem_import);
  look_up("cuMemGetAllocationGranularity", &driver.mem_granularity);
  look_up("cuTensorMapEncodeTiled", &driver.tensor_map_encode_tiled);
  look_up("cuGetErrorString", &driver.get_error_string);
  return driver;
}

void driver_check(const CudaDriver& driver, CUresult result, const char* op) {
  if (result == CUDA_SUCCESS) return;
  const char* reason = nullptr;
  driver.get_error_string(result, &reason);
  throw CudaError(op, std::string(reason == nullptr ? "unknown error" : reason));
}

}  // namespace baton
