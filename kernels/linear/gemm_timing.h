// Times matrix products for the table's tool and the benchmark: random data, more copies of the
// weights than the L2 cache holds, candidates in turn, medians.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/graph.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/gemm_cublas.h"
#include "kernels/linear/weight_convert.h"

namespace baton {

struct GemmProblem {
  int64_t rows = 0;
  int64_t cols = 0;
  GemmEpilogue epilogue = GemmEpilogue::kStore;
};

// The matrices of Llama 3.1 8B.
inline constexpr GemmProblem kLlama8bProblems[] = {{6144, 4096, GemmEpilogue::kStore},
                                                   {4096, 4096, GemmEpilogue::kAdd},
                                                   {28672, 4096, GemmEpilogue::kStore},
                                                   {4096, 14336, GemmEpilogue::kAdd},
                                                   {128256, 4096, GemmEpilogue::kFloat}};

class GemmTimer {
 public:
  GemmTimer(const GemmProblem& problem, int32_t tokens_max)
      : problem_(problem),
        weight_elems_(problem.rows * problem.cols),
        copies_(std::max<int64_t>(1, kCacheBytes / (weight_elems_ * 2) + 1)),
        weights_(copies_ * weight_elems_ * 2),
        x_(tokens_max * problem.cols * 2),
        y_(tokens_max * problem.rows * 4) {
    fill_random_cuda(1, 0.02F, weights_.as<Bf16>(), copies_ * weight_elems_, stream_.get());
    fill_random_cuda(2, 1.0F, x_.as<Bf16>(), tokens_max * problem.cols, stream_.get());
    fill_random_cuda(3, 1.0F, y_.as<Bf16>(), tokens_max * problem.rows * 2, stream_.get());
  }

  using Product = std::function<void(const GemmArgs&, cudaStream_t)>;

  // Median microseconds of each of `products` on `num_tokens` tokens; infinite where it failed.
  std::vector<double> time_us(const std::vector<Product>& products, int32_t num_tokens,
                              int32_t rounds) {
    std::vector<CudaGraph> graphs;
    for (const Product& product : products) graphs.push_back(record(product, num_tokens));
    std::vector<std::vector<double>> times(products.size());
    for (int32_t round = 0; round <= rounds; ++round) {  // the first one warms up
      for (size_t i = 0; i < products.size(); ++i) {
        const double time = graphs[i].valid() ? time_once(graphs[i], num_tokens) : INFINITY;
        if (round > 0) times[i].push_back(time);
      }
    }
    std::vector<double> medians;
    for (std::vector<double>& all : times) {
      std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
      medians.push_back(all[all.size() / 2]);
    }
    return medians;
  }

 private:
  static constexpr int64_t kCacheBytes = 200 << 20;

  // A graph of products that follow each other, as in a decode step; null where one failed.
  CudaGraph record(const Product& product, int32_t num_tokens) {
    CudaGraph graph;
    cuda_check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "capture");
    bool failed = false;
    for (int32_t i = 0; i < repeats(num_tokens) && !failed; ++i) {
      try {
        product({.weight = weights_.as<Bf16>() + next_copy_++ % copies_ * weight_elems_,
                 .x = x_.as<Bf16>(),
                 .y = y_.data(),
                 .rows = problem_.rows,
                 .cols = problem_.cols,
                 .y_stride = problem_.rows,
                 .num_tokens = num_tokens,
                 .epilogue = problem_.epilogue},
                stream_.get());
      } catch (const CudaError&) {
        failed = true;  // an algorithm that does not take so few tokens
      }
    }
    graph.end_capture(stream_.get(), failed);
    return graph;
  }

  double time_once(const CudaGraph& graph, int32_t num_tokens) {
    begin_.record(stream_.get());
    graph.launch(stream_.get());
    end_.record(stream_.get());
    end_.synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "time");
    return ms * 1000.0 / repeats(num_tokens);
  }
  static int32_t repeats(int32_t num_tokens) { return num_tokens <= 256 ? 24 : 4; }

  const GemmProblem problem_;
  const int64_t weight_elems_, copies_;
  int64_t next_copy_ = 0;
  CudaStream stream_;
  CudaEvent begin_{true}, end_{true};
  DeviceBuffer weights_, x_, y_;
};

}  // namespace baton
