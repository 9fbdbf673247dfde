// Brings weights to a GPU as bf16 while a model loads. A pipeline (weight_pipeline.h) reads them as
// they lie in the file into pinned buffers, from which they are copied; what is not bf16 lands in a
// buffer on the GPU and is converted or expanded there. Reading, copying and converting overlap,
// within a matrix and from one to the next. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/weight_pipeline.h"

namespace baton {

class WeightUploader {
 public:
  // For the GPU `device`, which is the calling thread's; `threads` read.
  WeightUploader(int32_t device, int32_t threads);

  // Queues the matrices below each other for `to`, bf16 [sum of rows, cols] on the device. A matrix
  // with neither source nor data gets seeded random values with a spread of 1 / sqrt(cols), which
  // keeps activations at a size that real ones have. Throws ConfigError for a shape that the
  // kernels cannot compute with.
  void upload(std::span<const TensorView> stacked, std::shared_ptr<const DeviceBuffer> to);

  // Returns when all of them are complete; nothing can follow. See WeightPipeline::finish.
  void finish(const std::function<void(double)>& progress);

 private:
  CudaStream random_stream_;
  uint64_t next_seed_ = 1;
  WeightPipeline pipeline_;
};

}  // namespace baton
