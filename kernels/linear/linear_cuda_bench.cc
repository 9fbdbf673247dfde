// linear_cuda_bench [TABLE [TOKENS ...]]: the matrix products of a decode step of Llama 3.1 8B: our
// kernels and cuBLASLt in turn (TABLE "": the shipped one), alone and in a layer (gemm_timing.h),
// against the time that reading the weights takes at least; and how far the results of the
// streaming kernel are from cuBLASLt's.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/testing.h"
#include "kernels/linear/gemm_timing.h"

namespace baton {
namespace {

constexpr double kReadTbS = 4.65;  // a kernel that only reads
constexpr int32_t kLayers = 32, kRounds = 5;

StreamPlan plan_of(const GemmTable& table, const GemmProblem& problem, int32_t num_sms) {
  const auto listed = table.small.find({problem.rows, problem.cols, 32, problem.epilogue});
  return listed != table.small.end() && listed->second.kernel == SmallKernel::kStream
             ? listed->second.plan
             : plan_stream_gemm(problem.rows, problem.cols, num_sms);
}

void run(const std::string& path, const std::vector<int32_t>& tokens) {
  const CudaDevice device = open_cuda_device(0);
  const GemmTable table = load_gemm_table(path, device.name);
  CublasGemm cublas(table);
  prepare_skinny_gemm();
  prepare_stream_gemm();
  std::printf("%s, %s; clusters at once of 2: %d, of 4: %d, of 8: %d\n", device.name.c_str(),
              cublas.numerics().c_str(), stream_clusters_max(2), stream_clusters_max(4),
              stream_clusters_max(8));
  std::printf(
      "   rows   cols tokens | skinny stream cuBLASLt us, in a layer | floor | difference\n");
  std::vector<std::array<double, 6>> step(tokens.size());
  double floor_step = 0;
  for (const GemmProblem& problem : kLlama8bProblems) {
    const StreamPlan plan = plan_of(table, problem, device.num_sms);
    std::printf("%ld x %ld: stream %d %d\n", problem.rows, problem.cols, plan.slices,
                plan.tile_rows);
    // Ours for fewest tokens, ours for more, cuBLASLt.
    std::vector<TimedProduct> products;
    for (const SmallChoice& choice : {SmallChoice{SmallKernel::kSkinny, {}},
                                      {SmallKernel::kStream, plan},
                                      {SmallKernel::kCublas, {}}})
      products.push_back(product_by(choice, cublas, device.num_sms));
    GemmTimer timer(problem, kStreamTokensMax);
    const double floor_us = 2.0 * problem.rows * problem.cols / kReadTbS / 1e6;
    const int32_t times = problem.epilogue == GemmEpilogue::kFloat ? 1 : kLayers;
    floor_step += times * floor_us;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const double difference = relative_error(timer.result(products[1], tokens[i]),
                                               timer.result(products[2], tokens[i]));
      std::vector<double> us = timer.time_us(products, tokens[i], kRounds, false);
      const std::vector<double> in_layer = timer.time_us(products, tokens[i], kRounds, true);
      us.insert(us.end(), in_layer.begin(), in_layer.end());
      std::printf(" %6ld %6ld  %5d | %6.1f %6.1f %6.1f, %6.1f %6.1f %6.1f | %5.1f | %.1e\n",
                  problem.rows, problem.cols, tokens[i], us[0], us[1], us[2], us[3], us[4], us[5],
                  floor_us, difference);
      for (size_t k = 0; k < us.size(); ++k) step[i][k] += times * us[k] / 1e3;
    }
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::printf(
        "a step's products, %3d tokens: skinny %.3f ms, stream %.3f, cuBLASLt %.3f, floor %.3f; in "
        "layers %.3f, %.3f, %.3f\n",
        tokens[i], step[i][0], step[i][1], step[i][2], floor_step / 1e3, step[i][3], step[i][4],
        step[i][5]);
  }
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    std::vector<int32_t> tokens;
    for (int i = 2; i < argc; ++i) {
      tokens.push_back(std::clamp(std::atoi(argv[i]), 1, baton::kStreamTokensMax));
    }
    if (tokens.empty()) tokens = {1, 8, 9, 16, 32, 48, 64, 96, 128};
    baton::run(argc > 1 ? argv[1] : "", tokens);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
