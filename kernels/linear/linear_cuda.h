// Weights and matrix products on a GPU. The products' operands must be of one type: weights of
// every dtype become that of what they are multiplied with (MatrixInput) on the device, f16 or
// bf16. Few tokens go to our own kernels (skinny_gemm.h, stream_gemm.h) where the table says that
// they are faster, many to cuBLASLt. Engine thread only.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>

#include "kernels/activation_types.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/linear/gemm_cublas.h"
#include "kernels/linear/gemm_table.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/small_gemm.h"

namespace baton {

// [rows, cols] on the device, f16 for kNormed, else bf16; shared where an embedding is the last
// layer's matrix too.
class CudaLinearWeight final : public LinearWeight {
 public:
  CudaLinearWeight(int64_t rows, int64_t cols, MatrixInput input,
                   std::shared_ptr<const DeviceBuffer> data)
      : LinearWeight(rows, cols), input_(input), data_(std::move(data)) {}
  MatrixInput input() const { return input_; }
  const uint16_t* bits() const { return data_->as<const uint16_t>(); }

 private:
  const MatrixInput input_;
  const std::shared_ptr<const DeviceBuffer> data_;
};

struct CudaLinearOptions {
  // Up to kStreamTokensMax tokens one kernel computes every product, so that a row's bits do not
  // depend on how many there are.
  bool deterministic = false;
  std::string gemm_table;  // a file (gemm_table.h); empty: the one shipped for this GPU
};

class CudaLinear {
 public:
  explicit CudaLinear(const CudaDevice& device, const CudaLinearOptions& options = {});

  // Contract: linear.h. Only enqueue on `stream`. x and y are 16-byte aligned.
  void linear(const LinearArgs<F16>& args, cudaStream_t stream);
  void add_linear(const LinearArgs<Bf16, float>& args, cudaStream_t stream);
  void logits(const LinearArgs<F16, float>& args, cudaStream_t stream);

  // What the bits of results depend on beside the GPU.
  std::string numerics() const;

 private:
  CudaLinear(const CudaDevice& device, const CudaLinearOptions& options, GemmTable table);
  SmallChoice choose(const GemmKey& product) const;
  template <typename T, typename Out>
  void multiply(const LinearArgs<T, Out>& args, GemmEpilogue epilogue, cudaStream_t stream);
  bool run_small(const SmallGemmArgs& args, cudaStream_t stream);

  const int32_t num_sms_;
  const bool deterministic_;
  const std::map<GemmKey, SmallChoice> small_;
  CublasGemm cublas_;
};

}  // namespace baton
