#include "kernels/linear/linear_cuda.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/linear/bias_cuda.h"
#include "kernels/linear/skinny_gemm.h"
#include "kernels/linear/stream_gemm.h"

namespace baton {
namespace {

// The weight, x, y and their shape, as both kinds of products want them.
template <typename Product, typename T, typename Out>
Product product_of(const LinearArgs<T, Out>& args, GemmEpilogue epilogue) {
  const auto& weight = static_cast<const CudaLinearWeight&>(*args.weight);
  CHECK((weight.input() == MatrixInput::kNormed) == has_half_operands(epilogue))
      << "linear: the weight was prepared for another input";
  CHECK_LE(std::max(weight.rows(), weight.cols()), int64_t{INT32_MAX}) << "linear";
  CHECK_EQ((reinterpret_cast<uintptr_t>(args.x) | reinterpret_cast<uintptr_t>(args.y)) % 16, 0U)
      << "linear: x and y want 16-byte alignment";
  Product product;
  product.weight = weight.bits();
  product.x = reinterpret_cast<const uint16_t*>(args.x);
  product.y = args.y;
  product.y_stride = args.y_stride > 0 ? args.y_stride : weight.rows();
  product.rows = static_cast<decltype(product.rows)>(weight.rows());
  product.cols = static_cast<decltype(product.cols)>(weight.cols());
  product.num_tokens = args.num_tokens;
  product.epilogue = epilogue;
  return product;
}

}  // namespace

CudaLinear::CudaLinear(const CudaDevice& device, const CudaLinearOptions& options)
    : CudaLinear(device, options, load_gemm_table(options.gemm_table, device.name)) {}

CudaLinear::CudaLinear(const CudaDevice& device, const CudaLinearOptions& options, GemmTable table)
    : num_sms_(device.num_sms),
      deterministic_(options.deterministic),
      small_(std::move(table.small)),
      cublas_(table) {
  prepare_skinny_gemm();
  prepare_stream_gemm();
}

std::string CudaLinear::numerics() const {
  return cublas_.numerics() + (deterministic_ ? "-deterministic" : "");
}

// Without a line in the table: what an H200 showed for the shapes that were measured.
SmallChoice CudaLinear::choose(const GemmKey& product) const {
  const auto listed = small_.find(product);
  if (listed != small_.end()) return listed->second;
  if (product.bucket <= 8) return {SmallKernel::kSkinny, {}};
  if (product.bucket > kSkinnyTokensMax) return {SmallKernel::kCublas, {}};
  return {SmallKernel::kStream, plan_stream_gemm(product.rows, product.cols, num_sms_)};
}

// False: cuBLASLt computes it.
bool CudaLinear::run_small(const SmallGemmArgs& args, cudaStream_t stream) {
  if (args.num_tokens > kStreamTokensMax || !small_gemm_takes(args.cols)) return false;
  if (deterministic_) {
    stream_gemm(args, plan_stream_gemm(args.rows, args.cols, num_sms_), stream);
    return true;
  }
  const SmallChoice choice =
      choose({args.rows, args.cols, small_token_bucket(args.num_tokens), args.epilogue});
  switch (choice.kernel) {
    case SmallKernel::kCublas:
      return false;
    case SmallKernel::kSkinny:
      skinny_gemm(args, num_sms_, stream);
      return true;
    case SmallKernel::kStream:
      stream_gemm(args, choice.plan, stream);
      return true;
  }
  return false;
}

// A bias goes to y before cuBLASLt's product is added to it.
template <typename T, typename Out>
void CudaLinear::multiply(const LinearArgs<T, Out>& args, GemmEpilogue epilogue,
                          cudaStream_t stream) {
  auto small = product_of<SmallGemmArgs>(args, epilogue);
  small.bias = args.bias;
  if (run_small(small, stream)) return;
  auto gemm = product_of<GemmArgs>(args, epilogue);
  if (args.bias != nullptr) {
    put_bias_cuda(args.bias, gemm.rows, gemm.num_tokens, epilogue, gemm.y, gemm.y_stride, stream);
    gemm.onto_y = true;
  }
  cublas_.run(gemm, stream);
}

void CudaLinear::linear(const LinearArgs<F16>& args, cudaStream_t stream) {
  multiply(args, GemmEpilogue::kStore, stream);
}

void CudaLinear::add_linear(const LinearArgs<Bf16, float>& args, cudaStream_t stream) {
  multiply(args, GemmEpilogue::kAdd, stream);
}

void CudaLinear::logits(const LinearArgs<F16, float>& args, cudaStream_t stream) {
  multiply(args, GemmEpilogue::kFloat, stream);
}

}  // namespace baton
