// Weights and matrix products on a GPU. Weights of every dtype become bf16 on the device when they
// are prepared (f16 and f32 are rounded, quantised blocks are expanded): the products' operands
// must be of one type. Few tokens go to our own kernels (skinny_gemm.h), many to cuBLASLt. Engine
// thread only.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "kernels/bf16.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/linear/gemm_cublas.h"
#include "kernels/linear/linear.h"

namespace baton {

// bf16 [rows, cols] on the device; shared where an embedding is the last layer's matrix too.
class CudaLinearWeight final : public LinearWeight {
 public:
  CudaLinearWeight(int64_t rows, int64_t cols, std::shared_ptr<const DeviceBuffer> data)
      : LinearWeight(rows, cols), data_(std::move(data)) {}
  const Bf16* data() const { return data_->as<const Bf16>(); }

 private:
  const std::shared_ptr<const DeviceBuffer> data_;
};

class CudaLinear {
 public:
  // `deterministic`: up to kSkinnyTokensMax tokens our kernels compute every product, so that a
  // row's bits do not depend on how many there are; else only those where they are faster than
  // cuBLASLt.
  CudaLinear(const CudaDevice& device, bool deterministic);

  // Contract: linear.h. Only enqueue on `stream`. x and y are 16-byte aligned.
  void linear(const LinearArgs<Bf16>& args, cudaStream_t stream);
  void logits(const LinearArgs<Bf16, float>& args, cudaStream_t stream);

  // What the bits of results depend on beside the GPU.
  std::string numerics() const {
    return cublas_.numerics() + (deterministic_ ? "-deterministic" : "");
  }

 private:
  bool is_skinny(const LinearWeight& weight, int32_t num_tokens) const;

  const int32_t num_sms_;
  const bool deterministic_;
  CublasGemm cublas_;
};

}  // namespace baton
