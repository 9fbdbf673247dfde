#include "kernels/linear/gemm_cublas.h"

#include <cstdio>
#include <cstring>

#include "base/status.h"
#include "kernels/cuda/error.h"

namespace baton {
namespace {

constexpr int64_t kWorkspaceBytes = 32 << 20;

void check_cublas(cublasStatus_t status, const char* op) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CudaError(op, std::string("cuBLASLt: ") + cublasLtGetStatusString(status));
  }
}

// cuBLASLt is column-major: our row-major [r, c] is its [c, r]. So y^T [rows, tokens] = W (as
// [cols, rows], transposed) times x^T [cols, tokens].
struct Layouts {
  cublasLtMatrixLayoutOpaque_t weight, x, y;
};

Layouts layouts_of(const GemmArgs& args, int64_t num_tokens) {
  Layouts layouts;
  const auto init = [](cublasLtMatrixLayoutOpaque_t* layout, cudaDataType type, int64_t rows,
                       int64_t cols, int64_t stride) {
    check_cublas(cublasLtMatrixLayoutInit(layout, type, static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(cols), stride),
                 "linear layout");
  };
  const cudaDataType operand = has_half_operands(args.epilogue) ? CUDA_R_16F : CUDA_R_16BF;
  const cudaDataType result = has_float_result(args.epilogue) ? CUDA_R_32F : CUDA_R_16F;
  init(&layouts.weight, operand, args.cols, args.rows, args.cols);
  init(&layouts.x, operand, args.cols, num_tokens, args.cols);
  init(&layouts.y, result, args.rows, num_tokens, args.y_stride);
  return layouts;
}

}  // namespace

CublasGemm::CublasGemm(const GemmTable& table) : workspace_(kWorkspaceBytes) {
  const auto start = [](cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw ConfigError(std::string("cuBLASLt does not start: ") + cublasLtGetStatusString(status));
    }
  };
  start(cublasLtCreate(&handle_));
  start(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  start(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                       sizeof(transposed)));
  start(cublasLtMatmulPreferenceCreate(&preference_));
  const uint64_t bytes = kWorkspaceBytes;
  start(cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &bytes, sizeof(bytes)));
  // Parts of a sum are added in float32 or not at all: in 16 bits they would lose bits.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  start(cublasLtMatmulPreferenceSetAttribute(
      preference_, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)));
  const uint64_t version = cublasLtGetVersion();
  if (table.library_version == version) listed_ = table.algorithms;
  char name[64];
  std::snprintf(name, sizeof(name), "cublaslt-%zu-table-%08x", version, table.digest);
  numerics_ = name;
}

CublasGemm::~CublasGemm() {
  if (preference_ != nullptr) cublasLtMatmulPreferenceDestroy(preference_);
  if (product_ != nullptr) cublasLtMatmulDescDestroy(product_);
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

std::vector<cublasLtMatmulAlgo_t> CublasGemm::candidates(const GemmArgs& args, int32_t count) {
  Layouts layouts = layouts_of(args, args.num_tokens);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  check_cublas(
      cublasLtMatmulAlgoGetHeuristic(handle_, product_, &layouts.weight, &layouts.x, &layouts.y,
                                     &layouts.y, preference_, count, results.data(), &found),
      "linear algorithm");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
  }
  return algorithms;
}

std::optional<cublasLtMatmulAlgo_t> CublasGemm::listed(const GemmArgs& args) {
  const int32_t bucket = gemm_token_bucket(args.num_tokens);
  const auto line = listed_.find({args.rows, args.cols, bucket, args.epilogue});
  if (line == listed_.end()) return std::nullopt;
  cublasLtMatmulAlgo_t algorithm;
  static_assert(sizeof(algorithm.data) == sizeof(GemmAlgorithm));
  std::memcpy(algorithm.data, line->second.data(), sizeof(algorithm.data));
  Layouts layouts = layouts_of(args, bucket);
  cublasLtMatmulHeuristicResult_t result;
  const bool takes =
      cublasLtMatmulAlgoCheck(handle_, product_, &layouts.weight, &layouts.x, &layouts.y,
                              &layouts.y, &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= static_cast<size_t>(kWorkspaceBytes);
  return takes ? std::optional(algorithm) : std::nullopt;
}

const cublasLtMatmulAlgo_t& CublasGemm::algorithm_for(const GemmArgs& args) {
  const int32_t bucket = gemm_token_bucket(args.num_tokens);
  const Key key{args.rows, args.cols, args.y_stride, bucket, args.epilogue};
  if (const auto known = algorithms_.find(key); known != algorithms_.end()) return known->second;

  std::optional<cublasLtMatmulAlgo_t> algorithm = listed(args);
  if (!algorithm) {
    GemmArgs full = args;
    full.num_tokens = bucket;
    const std::vector<cublasLtMatmulAlgo_t> found = candidates(full, 1);
    if (found.empty()) {
      throw CudaError("linear", "cuBLASLt has no algorithm for [" + std::to_string(args.rows) +
                                    ", " + std::to_string(args.cols) + "] x " +
                                    std::to_string(bucket) + " tokens");
    }
    algorithm = found[0];
  }
  return algorithms_.emplace(key, *algorithm).first->second;
}

void CublasGemm::run(const GemmArgs& args, cudaStream_t stream) {
  if (args.num_tokens == 0) return;
  run_with(args, algorithm_for(args), stream);
}

void CublasGemm::run_with(const GemmArgs& args, const cublasLtMatmulAlgo_t& algorithm,
                          cudaStream_t stream) {
  Layouts layouts = layouts_of(args, args.num_tokens);
  const bool add = args.epilogue == GemmEpilogue::kAdd || args.onto_y;
  const float one = 1.0F, beta = add ? 1.0F : 0.0F;
  check_cublas(cublasLtMatmul(handle_, product_, &one, args.weight, &layouts.weight, args.x,
                              &layouts.x, &beta, args.y, &layouts.y, args.y, &layouts.y, &algorithm,
                              workspace_.data(), kWorkspaceBytes, stream),
               "linear");
  check_launch("linear");
}

}  // namespace baton
