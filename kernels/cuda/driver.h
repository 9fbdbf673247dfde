// The functions of the CUDA driver that the runtime has no twin for, looked up at start-up: a
// program built with CUDA still starts where there is no driver (router, CPU workers, CI).
#pragma once

#include <cuda.h>

namespace baton {

struct CudaDriver {
  decltype(&::cuMemAddressReserve) mem_address_reserve;
  decltype(&::cuMemAddressFree) mem_address_free;
  decltype(&::cuMemCreate) mem_create;
  decltype(&::cuMemRelease) mem_release;
  decltype(&::cuMemMap) mem_map;
  decltype(&::cuMemUnmap) mem_unmap;
  decltype(&::cuMemSetAccess) mem_set_access;
  decltype(&::cuMemExportToShareableHandle) mem_export;
  decltype(&::cuMemImportFromShareableHandle) mem_import;
  decltype(&::cuMemGetAllocationGranularity) mem_granularity;
  decltype(&::cuTensorMapEncodeTiled) tensor_map_encode_tiled;
  decltype(&::cuGetErrorString) get_error_string;
};

// Throws ConfigError where a function is missing (no driver, or one older than CUDA 13.0).
CudaDriver load_cuda_driver();

// Throws CudaError{op} unless CUDA_SUCCESS.
void driver_check(const CudaDriver& driver, CUresult result, const char* op);

}  // namespace baton
