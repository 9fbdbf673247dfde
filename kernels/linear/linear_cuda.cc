#include "kernels/linear/linear_cuda.h"

#include "base/check.h"
#include "kernels/linear/bias_cuda.h"
#include "kernels/linear/skinny_gemm.h"

namespace baton {
namespace {

// The weight, x, y and their shape, as both kinds of products want them.
template <typename Args, typename Out>
Args product_args(const LinearArgs<Bf16, Out>& args) {
  const auto& weight = static_cast<const CudaLinearWeight&>(*args.weight);
  Args product;
  product.weight = weight.data();
  product.x = args.x;
  product.y = args.y;
  product.y_stride = args.y_stride > 0 ? args.y_stride : weight.rows();
  product.rows = static_cast<decltype(product.rows)>(weight.rows());
  product.cols = static_cast<decltype(product.cols)>(weight.cols());
  product.num_tokens = args.num_tokens;
  return product;
}

}  // namespace

CudaLinear::CudaLinear(const CudaDevice& device, bool deterministic)
    : num_sms_(device.num_sms), deterministic_(deterministic), cublas_(device.name) {
  prepare_skinny_gemm();
}

bool CudaLinear::is_skinny(const LinearWeight& weight, int32_t num_tokens) const {
  if (num_tokens > kSkinnyTokensMax || !skinny_gemm_takes(weight.rows(), weight.cols())) {
    return false;
  }
  // As linear_cuda_bench measured on an H200, behind a small op: more tokens suit cuBLASLt, and
  // the earlier the larger the matrix.
  const int64_t elems = weight.rows() * weight.cols();
  const bool faster = num_tokens <= 8 || (num_tokens <= 16 && elems <= 64 << 20) ||
                      (num_tokens <= 32 && elems <= 32 << 20);
  return deterministic_ || faster;
}

void CudaLinear::linear(const LinearArgs<Bf16>& args, cudaStream_t stream) {
  if (is_skinny(*args.weight, args.num_tokens)) {
    auto skinny = product_args<SkinnyArgs>(args);
    skinny.bias = args.bias;
    skinny.accumulate = args.accumulate;
    return skinny_gemm(skinny, num_sms_, stream);
  }
  auto gemm = product_args<GemmArgs>(args);
  // With a bias the product adds to y, which holds the bias by then: one rounding, of the sum.
  const bool add = args.accumulate || args.bias != nullptr;
  gemm.epilogue = add ? GemmEpilogue::kAdd : GemmEpilogue::kStore;
  if (args.bias != nullptr) {
    put_bias_cuda(args.bias, gemm.rows, gemm.num_tokens, args.accumulate, args.y, gemm.y_stride,
                  stream);
  }
  cublas_.run(gemm, stream);
}

void CudaLinear::logits(const LinearArgs<Bf16, float>& args, cudaStream_t stream) {
  CHECK(args.bias == nullptr && !args.accumulate) << "logits: no model has it";
  if (is_skinny(*args.weight, args.num_tokens)) {
    auto skinny = product_args<SkinnyArgs>(args);
    skinny.is_float = true;
    return skinny_gemm(skinny, num_sms_, stream);
  }
  auto gemm = product_args<GemmArgs>(args);
  gemm.epilogue = GemmEpilogue::kFloat;
  cublas_.run(gemm, stream);
}

}  // namespace baton
