// Matrix products through cuBLASLt: y = x W^T with bf16 operands and float32 sums. Which algorithm
// a shape gets is fixed at its first use: the table's (gemm_table.h), else cuBLASLt's own
// first choice. Up to kSmallTokens tokens share one algorithm, so that a row does not depend on how
// many there are. Engine thread only.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cuda/memory.h"
#include "kernels/linear/gemm_table.h"

namespace baton {

//   weight  bf16 [rows, cols]
//   x       bf16 [num_tokens, cols]
//   y       [num_tokens, rows], row t at y + t * y_stride: bf16, float32 where the epilogue is
//           kFloat; added to where it is kAdd
// All on the device, 16-byte aligned; cols is a multiple of 8.
struct GemmArgs {
  const Bf16* weight = nullptr;
  const Bf16* x = nullptr;
  void* y = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t y_stride = 0;
  int32_t num_tokens = 0;
  GemmEpilogue epilogue = GemmEpilogue::kStore;
};

class CublasGemm {
 public:
  // Throws ConfigError when cuBLASLt does not start.
  explicit CublasGemm(const GemmTable& table);
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;
  ~CublasGemm();

  // Enqueues on `stream`. Throws CudaError.
  void run(const GemmArgs& args, cudaStream_t stream);

  // For the table's tool: cuBLASLt's best guesses for a shape, and a product by one of them.
  std::vector<cublasLtMatmulAlgo_t> candidates(const GemmArgs& args, int32_t count);
  void run_with(const GemmArgs& args, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);

  // Names the table and the library: part of numerics_id.
  const std::string& numerics() const { return numerics_; }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int32_t, GemmEpilogue>;
  const cublasLtMatmulAlgo_t& algorithm_for(const GemmArgs& args);

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  DeviceBuffer workspace_;
  std::map<GemmKey, GemmAlgorithm> listed_;
  std::string numerics_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace baton
