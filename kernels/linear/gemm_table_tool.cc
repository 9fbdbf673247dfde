// gemm_table_tool OUT [--small] [rows:cols:store|add|float ...]
// Measures on this GPU which cuBLASLt algorithm is fastest for each product, and which kernel for
// few tokens, and writes the table that gemm_table.h describes. Without products it takes those of
// Llama 3.1 8B. --small: few tokens alone, which takes seconds; cuBLASLt's lines are those of the
// shipped table. Try the result with engine_bench --gemm-table; copied to kernels/linear/tables/ it
// is built in.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
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

// For this bucket and its neighbours cuBLASLt's guesses and what the shipped table lists, each
// once; cuBLASLt's first choice comes first.
std::vector<cublasLtMatmulAlgo_t> candidates_of(CublasGemm& gemm, const GemmProblem& problem,
                                                int32_t bucket) {
  std::vector<cublasLtMatmulAlgo_t> all;
  const auto add = [&](const cublasLtMatmulAlgo_t& found) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const auto& other) {
      return std::memcmp(other.data, found.data, sizeof(found.data)) == 0;
    });
    if (!known) all.push_back(found);
  };
  for (const int32_t num_tokens : {bucket, bucket / 2, bucket * 2, bucket / 4, bucket * 4}) {
    const GemmArgs args{.rows = problem.rows,
                        .cols = problem.cols,
                        .y_stride = problem.rows,
                        .num_tokens = num_tokens,
                        .epilogue = problem.epilogue};
    for (const cublasLtMatmulAlgo_t& found : gemm.candidates(args, kCandidates)) add(found);
    if (const auto listed = gemm.listed(args)) add(*listed);
  }
  return all;
}

std::string measure(CublasGemm& gemm, GemmTimer& timer, const GemmProblem& problem,
                    int32_t bucket) {
  const std::vector<cublasLtMatmulAlgo_t> candidates = candidates_of(gemm, problem, bucket);
  std::vector<TimedProduct> products;
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

std::string first_line(const CudaDevice& device) {
  return std::to_string(cublasLtGetVersion()) + ' ' + device.name + '\n';
}

std::string measure_cublas(const CudaDevice& device, const std::vector<GemmProblem>& problems) {
  CublasGemm gemm(load_gemm_table("", device.name));
  std::string lines = first_line(device);
  for (const GemmProblem& problem : problems) {
    // Logits are wanted of a prompt's last token and of decodes.
    const int32_t largest = problem.epilogue == GemmEpilogue::kFloat ? 512 : kLargeTokens;
    GemmTimer timer(problem, largest);
    for (int32_t bucket = kSmallTokens; bucket <= largest; bucket *= 2) {
      lines += measure(gemm, timer, problem, bucket) + '\n';
    }
  }
  return lines;
}

// The shipped table without what it says of few tokens.
std::string shipped_cublas(const CudaDevice& device) {
  std::istringstream shipped{std::string(shipped_gemm_table(device.name))};
  std::string lines, line;
  if (!std::getline(shipped, line)) throw ConfigError("--small: no table of " + device.name);
  for (lines = line + '\n'; std::getline(shipped, line);) {
    if (parse_gemm_table(lines + line).small.empty()) lines += line + '\n';
  }
  return lines;
}

// cuBLASLt, the skinny kernels, and the streaming one cut up in each way.
std::vector<SmallChoice> small_choices(const CudaDevice& device, const GemmProblem& problem) {
  std::vector<SmallChoice> choices = {{SmallKernel::kCublas, {}}, {SmallKernel::kSkinny, {}}};
  for (const int32_t slices : {1, 2, 4, 8}) {
    if (slices * kGemmStageCols > problem.cols) break;
    for (const int32_t tile_rows_max : {kTileRowsMax, kLowTileRows}) {
      const SmallChoice choice = {
          SmallKernel::kStream,
          plan_stream_gemm(problem.rows, problem.cols, device.num_sms, slices, tile_rows_max)};
      if (choice != choices.back()) choices.push_back(choice);
    }
  }
  return choices;
}

// Up to kSmallTokens tokens one plan for all buckets, so that a row's bits seldom depend on how
// many there are; then for each bucket the fastest kernel. More tokens have a plan of their own.
std::string measure_small(const CudaDevice& device, CublasGemm& gemm, const GemmProblem& problem) {
  const std::vector<SmallChoice> choices = small_choices(device, problem);
  std::vector<TimedProduct> products;
  for (const SmallChoice& choice : choices)
    products.push_back(product_by(choice, gemm, device.num_sms));
  GemmTimer timer(problem, kStreamTokensMax);
  std::vector<std::vector<double>> times;  // [bucket][choice]
  std::vector<double> total(choices.size(), 0.0);
  for (const int32_t bucket : kSmallBuckets) {
    times.push_back(timer.time_us(products, bucket, kRounds, true));
    std::printf("%6ld x %5ld, %3d tokens, us:", problem.rows, problem.cols, bucket);
    for (size_t i = 0; i < choices.size(); ++i) {
      std::printf("  %s %.1f", small_choice_name(choices[i]).c_str(), times.back()[i]);
      if (bucket >= 16 && bucket <= 64) total[i] += times.back()[i];
    }
    std::printf("\n");
  }
  const size_t plan = std::min_element(total.begin() + 2, total.end()) - total.begin();
  std::string lines;
  for (size_t b = 0; b < times.size(); ++b) {
    size_t best = plan;
    for (size_t i = 0; i < choices.size(); ++i) {
      const bool may = i < 2 || kSmallBuckets[b] > kSmallTokens;
      if (may && times[b][i] < times[b][best]) best = i;
    }
    lines += gemm_table_line({problem.rows, problem.cols, kSmallBuckets[b], problem.epilogue},
                             choices[best], times[b][best]) +
             '\n';
  }
  return lines;
}

void run(const std::string& path, bool small_only, const std::vector<GemmProblem>& problems) {
  const CudaDevice device = open_cuda_device(0);
  prepare_skinny_gemm();
  prepare_stream_gemm();
  std::string lines = small_only ? shipped_cublas(device) : measure_cublas(device, problems);
  CublasGemm gemm(parse_gemm_table(lines));
  for (const GemmProblem& problem : problems) lines += measure_small(device, gemm, problem);
  std::ofstream out(path);
  out << lines;
  if (!out.flush()) throw ConfigError(path + ": cannot write");
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    if (argc < 2) {
      throw baton::ConfigError("usage: gemm_table_tool OUT [--small] [rows:cols:epilogue ...]");
    }
    const bool small_only = argc > 2 && std::strcmp(argv[2], "--small") == 0;
    std::vector<baton::GemmProblem> problems;
    for (int i = small_only ? 3 : 2; i < argc; ++i) {
      problems.push_back(baton::parse_problem(argv[i]));
    }
    if (problems.empty()) {
      problems.assign(std::begin(baton::kLlama8bProblems), std::end(baton::kLlama8bProblems));
    }
    baton::run(argv[1], small_only, problems);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
