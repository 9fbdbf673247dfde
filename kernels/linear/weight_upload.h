// Brings weights from host memory (mapped files) to the GPU as bf16 while a model loads: threads
// read and, for quantised blocks, expand into one of two pinned buffers while the other one is on
// its way. Engine thread only.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/linear.h"

namespace baton {

class WeightUploader {
 public:
  // `threads` read and expand, the caller's included.
  explicit WeightUploader(int32_t threads);

  // Writes the matrices below each other to `to`, bf16 [sum of rows, cols] on the device. A matrix
  // without data gets seeded random values with a spread of 1 / sqrt(cols), which keeps activations
  // at a size that real ones have. `user` waits for the writes; this call does not wait for the
  // last of them, but all host memory has been read when it returns.
  void upload(std::span<const TensorView> stacked, Bf16* to, cudaStream_t user);

 private:
  struct Stage {
    PinnedBuffer host;
    DeviceBuffer device;  // for float types that the GPU converts
    CudaEvent free;       // recorded when the last use of the stage has been enqueued
  };
  void upload_one(const TensorView& view, Bf16* to);
  void upload_rows(const TensorView& view, int64_t first_row, int64_t num_rows, Bf16* to);

  ThreadPool threads_;
  CudaStream stream_;
  CudaEvent done_;
  Stage stages_[2];
  int32_t next_stage_ = 0;
  uint64_t next_seed_ = 1;
};

}  // namespace baton
