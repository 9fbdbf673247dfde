// linear_cuda_bench: the matrix products of a decode step of Llama 3.1 8B, our kernels and
// cuBLASLt's table in turn, against the time that reading the weights takes at least. Each product
// is timed in a graph of its own kind, over more copies of the weights than the cache holds; and
// with a small op before each, as in a layer, which our kernels start beside.
#include <cstdio>
#include <stdexcept>

#include "kernels/cuda/device.h"
#include "kernels/linear/bias_cuda.h"
#include "kernels/linear/gemm_timing.h"
#include "kernels/linear/skinny_gemm.h"

namespace baton {
namespace {

constexpr double kReadTbS = 4.65;  // a kernel that only reads
constexpr int32_t kTokens[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
constexpr int32_t kLayers = 32;
constexpr int64_t kSmallOpCols = 4096;

SkinnyArgs skinny_args(const GemmArgs& args) {
  return {.weight = args.weight,
          .x = args.x,
          .y = args.y,
          .y_stride = args.y_stride,
          .rows = static_cast<int32_t>(args.rows),
          .cols = static_cast<int32_t>(args.cols),
          .num_tokens = args.num_tokens,
          .is_float = args.epilogue == GemmEpilogue::kFloat,
          .accumulate = args.epilogue == GemmEpilogue::kAdd};
}

void run() {
  const CudaDevice device = open_cuda_device(0);
  CublasGemm cublas(device.name);
  prepare_skinny_gemm();
  const DeviceBuffer bias(kSmallOpCols * 4), small(kSkinnyTokensMax * kSmallOpCols * 2);
  fill_random_cuda(9, 1.0F, bias.as<Bf16>(), kSmallOpCols * 2, nullptr);
  const auto small_op = [&](int32_t num_tokens, cudaStream_t stream) {
    put_bias_cuda(bias.as<float>(), kSmallOpCols, num_tokens, false, small.as<Bf16>(), kSmallOpCols,
                  stream);
  };
  const GemmTimer::Product ours = [&](const GemmArgs& args, cudaStream_t stream) {
    skinny_gemm(skinny_args(args), device.num_sms, stream);
  };
  const GemmTimer::Product theirs = [&](const GemmArgs& args, cudaStream_t stream) {
    cublas.run(args, stream);
  };
  const std::vector<GemmTimer::Product> products = {ours, theirs,
                                                    [&](const GemmArgs& args, cudaStream_t stream) {
                                                      small_op(args.num_tokens, stream);
                                                      ours(args, stream);
                                                    },
                                                    [&](const GemmArgs& args, cudaStream_t stream) {
                                                      small_op(args.num_tokens, stream);
                                                      theirs(args, stream);
                                                    }};
  std::printf("%s, %s\n", device.name.c_str(), cublas.numerics().c_str());
  std::printf(
      "   rows    cols tokens |  ours us  TB/s | cuBLASLt us  TB/s | behind a small op |  floor "
      "us\n");
  double ours_step[std::size(kTokens)] = {}, cublas_step[std::size(kTokens)] = {}, floor_step = 0;
  for (const GemmProblem& problem : kLlama8bProblems) {
    GemmTimer timer(problem, kSkinnyTokensMax);
    const double bytes = 2.0 * problem.rows * problem.cols;
    const int32_t times = problem.epilogue == GemmEpilogue::kFloat ? 1 : kLayers;
    floor_step += times * bytes / kReadTbS / 1e6;
    for (size_t i = 0; i < std::size(kTokens); ++i) {
      const std::vector<double> us = timer.time_us(products, kTokens[i], 9);
      std::printf(" %6ld  %6ld  %5d | %8.1f  %4.2f |    %8.1f  %4.2f | %8.1f %8.1f | %8.1f\n",
                  problem.rows, problem.cols, kTokens[i], us[0], bytes / us[0] / 1e6, us[1],
                  bytes / us[1] / 1e6, us[2], us[3], bytes / kReadTbS / 1e6);
      ours_step[i] += times * us[0];
      cublas_step[i] += times * us[1];
    }
  }
  for (size_t i = 0; i < std::size(kTokens); ++i) {
    std::printf("a step's products, %2d tokens: ours %.3f ms, cuBLASLt %.3f ms, floor %.3f ms\n",
                kTokens[i], ours_step[i] / 1e3, cublas_step[i] / 1e3, floor_step / 1e3);
  }
}

}  // namespace
}  // namespace baton

int main() {
  try {
    baton::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
