// The backend on one GPU: every op of BackendOf<Bf16> enqueued on one stream. Made and used by the
// engine thread. Ops neither allocate nor synchronise and can be captured in a graph; run each
// shape once before its capture, because CUDA loads a kernel at its first use. A failed op throws
// CudaError (error.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/bf16.h"
#include "kernels/cuda/device.h"

namespace baton {

class CudaBackend : public BackendOf<Bf16> {
 public:
  virtual cudaStream_t stream() const = 0;
  virtual const CudaDevice& device() const = 0;

  // Weights are complete on the device, and the memory that only loading needs is given back.
  virtual void finish_loading() = 0;
};

struct CudaBackendOptions {
  int32_t load_threads = 0;    // read and expand weights; 0 = as many as cores, 16 at most
  bool deterministic = false;  // rows of linear do not depend on the batch (linear_cuda.h)
  std::string gemm_table;      // a file; empty: the one shipped for this GPU
};

// Opens GPU `index`. Throws ConfigError, one line, for whatever keeps it from serving (device.h).
//
// Weights of every dtype become bf16 on the device; one without data (TensorView.data == nullptr)
// gets seeded random values. Throws ConfigError when the memory does not suffice.
std::unique_ptr<CudaBackend> make_cuda_backend(int32_t index,
                                               const CudaBackendOptions& options = {});

}  // namespace baton
