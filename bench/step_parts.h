// The parts of an engine step, each timed alone on the GPU in the best way there is: what a step
// would take if nothing lay between them. Beside engine_bench's figures of whole steps.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/gemm_cublas.h"
#include "model/engine.h"
#include "model/model_config.h"

namespace baton {

struct PartsMs {
  double linear = 0;  // each matrix by the fastest of our kernels and cuBLASLt
  double attention = 0;
  double rest = 0;  // norms, RoPE and KV write, activation, embedding, sampling
  double sum() const { return linear + attention + rest; }
};

class StepParts {
 public:
  // Borrows the model: its pages are read and written. `gemm_table` as in EngineOptions. Throws
  // ConfigError.
  StepParts(ModelConfig config, const LoadedModel& model, const std::string& gemm_table);

  // A step of `sequences`, each of `num_tokens` new tokens behind `first_pos` cached ones, one of
  // them sampled. The engine is idle meanwhile. Throws CudaError.
  PartsMs time(int32_t sequences, int32_t num_tokens, int32_t first_pos);

 private:
  double linear_us(int64_t rows, int64_t cols, GemmEpilogue epilogue, int32_t num_tokens);
  double attention_us(int32_t sequences, int32_t num_tokens, int32_t first_pos);
  double layer_rest_us(int32_t num_tokens);
  double sampling_us(int32_t num_samples);
  PagedLayer pages() const;

  const ModelConfig config_;
  const LoadedModel& model_;
  const CudaDevice device_;
  CublasGemm cublas_;
  const CudaStream stream_;
};

}  // namespace baton
