// The backend on one GPU: every op of BackendOf<Bf16> enqueued on one stream. Made and used by the
// engine thread. Ops neither allocate nor synchronise and can be captured in a graph; run each
// shape once before its capture, because CUDA loads a kernel at its first use. A failed op throws
// CudaError (error.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
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

  // Prepared weights arrive in the background. Returns when they are complete on the device, and
  // the memory that only loading needs is given back. `progress` (may be empty) hears the fraction
  // that has been sent. Throws ConfigError when one could not be read.
  virtual void finish_loading(const std::function<void(double)>& progress) = 0;
};

struct CudaBackendOptions {
  int32_t load_threads = 0;    // read weights; 0 = as many as cores, from 8 (disks) to 16
  bool deterministic = false;  // rows of linear do not depend on the batch (linear_cuda.h)
  std::string gemm_table;      // a file; empty: the one shipped for this GPU
};

// Opens GPU `index`. Throws ConfigError, one line, for whatever keeps it from serving (device.h).
//
// Weights of every dtype become bf16 on the device, then f16 where a norm's result is multiplied
// with them; one without data (TensorView.data == nullptr) gets seeded random values. What a view
// borrows must live until finish_loading(), files excepted: their TensorView.source is kept. Throws
// ConfigError when the memory does not suffice.
std::unique_ptr<CudaBackend> make_cuda_backend(int32_t index,
                                               const CudaBackendOptions& options = {});

}  // namespace baton
