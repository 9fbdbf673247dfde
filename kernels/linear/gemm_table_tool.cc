// gemm_table_tool OUT [rows:cols:store|add|float ...]
// Measures which cuBLASLt algorithm is fastest for each product on this GPU and writes the table
// that gemm_table.h describes. Without products it takes those of Llama 3.1 8B. Copy the result to
// kernels/linear/tables/ and build again.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "base/status.h"
#include "kernels/cuda/device.h"
#include "kernels/linear/gemm_timing.h"

namespace baton {
namespace {

constexpr int32_t kCandidates = 16;
constexpr int32_t kRounds = 7;

GemmProblem parse_problem(const std::string& text) {
  GemmProblem problem;
  char epilogue[16] = "";
  if (std::sscanf(text.c_str(), "%ld:%ld:%15s", &problem.rows, &problem.cols, epilogue) != 3) {
    throw ConfigError("product: got '" + text + "', want rows:cols:store, add or float");
  }
  for (const auto known : {GemmEpilogue::kStore, GemmEpilogue::kAdd, GemmEpilogue::kFloat}) {
    if (std::strcmp(epilogue, gemm_epilogue_name(known)) == 0) problem.epilogue = known;
  }
  return problem;
}

// Few tokens share one algorithm, so it has to be good for all of them.
std::vector<int32_t> token_counts(int32_t bucket) {
  return bucket == kSmallTokens ? std::vector<int32_t>{1, 16, 64} : std::vector<int32_t>{bucket};
}

// cuBLASLt's guesses for this bucket and its neighbours, each once; its first choice comes first.
std::vector<cublasLtMatmulAlgo_t> candidates_of(CublasGemm& gemm, const GemmProblem& problem,
                                                int32_t bucket) {
  std::vector<cublasLtMatmulAlgo_t> all;
  for (const int32_t num_tokens : {bucket, bucket / 2, bucket * 2, bucket / 4, bucket * 4}) {
    for (const cublasLtMatmulAlgo_t& found : gemm.candidates({.rows = problem.rows,
                                             .cols = problem.cols,
                                             .y_stride = problem.rows,
                                             .num_tokens = num_tokens,
                                             .epilogue = problem.epilogue},
                                                             kCandidates)) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const auto& other) {
        return std::memcmp(other.data, found.data, sizeof(found.data)) == 0;
      });
      if (!known) all.push_back(found);
    }
  }
  return all;
}

std::string measure(CublasGemm& gemm, GemmTimer& timer, const GemmProblem& problem,
                    int32_t bucket) {
  const std::vector<cublasLtMatmulAlgo_t> candidates = candidates_of(gemm, problem, bucket);
  std::vector<GemmTimer::Product> products;
  for (const cublasLtMatmulAlgo_t& algorithm : candidates) {
    products.push_back([&gemm, &algorithm](const GemmArgs& args, cudaStream_t stream) {
      gemm.run_with(args, algorithm, stream);
    });
  }
  std::vector<double> total(products.size(), 0.0);
  for (const int32_t num_tokens : token_counts(bucket)) {
    const std::vector<double> times = timer.time_us(products, num_tokens, kRounds);
    for (size_t i = 0; i < times.size(); ++i) total[i] += times[i];
  }
  const size_t best = std::min_element(total.begin(), total.end()) - total.begin();
  const double time_us = total[best] / static_cast<double>(token_counts(bucket).size());
  const double flops = 2.0 * problem.rows * problem.cols * bucket;
  std::printf("%6ld x %5ld, %4d tokens, %-5s: %8.1f us (first choice %8.1f), best %zu of %zu",
              problem.rows, problem.cols, bucket, gemm_epilogue_name(problem.epilogue), time_us,
              total[0] / static_cast<double>(token_counts(bucket).size()), best, total.size());
  std::printf(", %.2f TB/s of weights, %.0f TFLOP/s\n",
              problem.rows * problem.cols * 2 / time_us / 1e6, flops / time_us / 1e6);
  GemmAlgorithm words;
  std::memcpy(words.data(), candidates[best].data, sizeof(words));
  return gemm_table_line({problem.rows, problem.cols, bucket, problem.epilogue}, words, time_us);
}

void run(const std::string& path, const std::vector<GemmProblem>& problems) {
  const CudaDevice device = open_cuda_device(0);
  CublasGemm gemm(device.name);
  std::ofstream out(path);
  out << cublasLtGetVersion() << ' ' << device.name << '\n';
  for (const GemmProblem& problem : problems) {
    // Logits are wanted of a prompt's last token and of decodes.
    const int32_t largest = problem.epilogue == GemmEpilogue::kFloat ? 512 : kLargeTokens;
    GemmTimer timer(problem, largest);
    for (int32_t bucket = kSmallTokens; bucket <= largest; bucket *= 2) {
      out << measure(gemm, timer, problem, bucket) << '\n';
    }
  }
  if (!out.flush()) throw ConfigError(path + ": cannot write");
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    if (argc < 2) throw baton::ConfigError("usage: gemm_table_tool OUT [rows:cols:epilogue ...]");
    std::vector<baton::GemmProblem> problems;
    for (int i = 2; i < argc; ++i) problems.push_back(baton::parse_problem(argv[i]));
    if (problems.empty()) {
      problems.assign(std::begin(baton::kLlama8bProblems), std::end(baton::kLlama8bProblems));
    }
    baton::run(argv[1], problems);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
