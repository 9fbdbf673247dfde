// Matrix products through cuBLASLt: y = x W^T with 16-bit operands and float32 sums. Which
// algorithm a shape gets is fixed at its first use: the table's (gemm_table.h) if cuBLASLt takes
// it, else its own first choice. Up to kSmallTokens tokens share one algorithm, so that a row does
// not depend on how many there are. Engine thread only.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/memory.h"
#include "kernels/linear/gemm_table.h"

namespace baton {

//   weight  [rows, cols]
//   x       [num_tokens, cols]
//   y       [num_tokens, rows], row t at y + t * y_stride
// Types: gemm_epilogue.h. All on the device, 16-byte aligned; cols is a multiple of 8. `onto_y`:
// added to y where the epilogue would overwrite it. cuBLASLt rounds a sum to y's type before it
// adds it to y, and then the result.
struct GemmArgs {
  const uint16_t* weight = nullptr;
  const uint16_t* x = nullptr;
  void* y = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t y_stride = 0;
  int32_t num_tokens = 0;
  GemmEpilogue epilogue = GemmEpilogue::kStore;
  bool onto_y = false;
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

  // For the table's tool: what the table lists for a shape, if cuBLASLt takes it; cuBLASLt's best
  // guesses; and a product by one of them.
  std::optional<cublasLtMatmulAlgo_t> listed(const GemmArgs& args);
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
