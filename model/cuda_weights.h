// Weights of a model on a GPU: queued tensor by tensor, complete when the call returns.
#pragma once

#include <functional>

#include "kernels/cuda/backend_cuda.h"
#include "model/model_source.h"

namespace baton {

// Takes source.store. `progress` (may be empty) hears the fraction that has been read; the log says
// how far it is every few seconds, and at the end how fast it went. Throws ConfigError.
Weights load_cuda_weights(ModelSource& source, CudaBackend& backend,
                          const std::function<void(double)>& progress);

}  // namespace baton
