// Times matrix products for the table's tool and the benchmark: random data, more copies of the
// weights than the L2 cache holds, candidates in turn, medians. Few tokens are timed as in a layer,
// where an RMS norm precedes each product, beside which our kernels start; cuBLASLt's cannot.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cpu/half.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/gemm_cublas.h"
#include "kernels/linear/skinny_gemm.h"
#include "kernels/linear/stream_gemm.h"
#include "kernels/linear/weight_convert.h"
#include "kernels/rms_norm/rms_norm_cuda.h"

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

inline SmallGemmArgs small_args(const GemmArgs& args) {
  return {.weight = args.weight,
          .x = args.x,
          .y = args.y,
          .y_stride = args.y_stride,
          .rows = static_cast<int32_t>(args.rows),
          .cols = static_cast<int32_t>(args.cols),
          .num_tokens = args.num_tokens,
          .epilogue = args.epilogue};
}

using TimedProduct = std::function<void(const GemmArgs&, cudaStream_t)>;

// By one of the kernels for few tokens, or by cuBLASLt, which is borrowed. The product throws
// CudaError where its kernel does not take so many tokens.
inline TimedProduct product_by(const SmallChoice& choice, CublasGemm& cublas, int32_t num_sms) {
  return [&cublas, choice, num_sms](const GemmArgs& args, cudaStream_t stream) {
    if (choice.kernel == SmallKernel::kCublas) return cublas.run(args, stream);
    const bool streams = choice.kernel == SmallKernel::kStream;
    if (args.num_tokens > (streams ? kStreamTokensMax : kSkinnyTokensMax))
      throw CudaError("linear", "too many tokens");
    if (streams) return stream_gemm(small_args(args), choice.plan, stream);
    skinny_gemm(small_args(args), num_sms, stream);
  };
}

class GemmTimer {
 public:
  GemmTimer(const GemmProblem& problem, int32_t tokens_max)
      : problem_(problem),
        weight_elems_(problem.rows * problem.cols),
        copies_(std::max<int64_t>(1, kCacheBytes / (weight_elems_ * 2) + 1)),
        weights_(copies_ * weight_elems_ * 2),
        x_(tokens_max * problem.cols * 2),
        y_(tokens_max * problem.rows * 4),
        norm_weight_(kNormCols * 4),
        hidden_(tokens_max * kNormCols * 4),
        normed_(tokens_max * kNormCols * 2) {
    fill_random_cuda(1, 0.02F, weights_.as<Bf16>(), copies_ * weight_elems_, stream_.get());
    fill_random_cuda(2, 1.0F, x_.as<Bf16>(), tokens_max * problem.cols, stream_.get());
    // Of 8 significant bits, as the weights of bf16 files and most of what they meet.
    if (has_half_operands(problem.epilogue)) {
      bf16_to_half_cuda(weights_.data(), copies_ * weight_elems_, stream_.get());
      bf16_to_half_cuda(x_.data(), tokens_max * problem.cols, stream_.get());
    }
    fill_random_cuda(3, 1.0F, y_.as<Bf16>(), tokens_max * problem.rows * 2, stream_.get());
    fill_random_cuda(4, 1.0F, norm_weight_.as<Bf16>(), kNormCols * 2, stream_.get());
    fill_random_cuda(5, 1.0F, hidden_.as<Bf16>(), tokens_max * kNormCols * 2, stream_.get());
  }

  // Median microseconds of each of `products` on `num_tokens` tokens; infinite where it failed.
  // `in_layer`: with the RMS norm before it.
  std::vector<double> time_us(const std::vector<TimedProduct>& products, int32_t num_tokens,
                              int32_t rounds, bool in_layer = false) {
    std::vector<CudaGraph> graphs;
    for (const TimedProduct& product : products)
      graphs.push_back(record(product, num_tokens, in_layer));
    std::vector<double> times = time_graphs(stream_, graphs, rounds);
    for (double& time : times) time /= repeats(num_tokens);
    return times;
  }

  // What `product` makes of zeros (to add to) and the first copy of the weights: [num_tokens,
  // rows].
  std::vector<float> result(const TimedProduct& product, int32_t num_tokens) {
    cuda_check(cudaMemsetAsync(y_.data(), 0, static_cast<size_t>(y_.bytes()), stream_.get()), "");
    product(args_of(0, num_tokens), stream_.get());
    stream_.synchronize();
    const auto count = static_cast<size_t>(num_tokens * problem_.rows);
    std::vector<float> values(count);
    if (has_float_result(problem_.epilogue)) {
      cuda_check(cudaMemcpy(values.data(), y_.data(), count * 4, cudaMemcpyDefault), "result");
      return values;
    }
    std::vector<uint16_t> rounded(count);
    cuda_check(cudaMemcpy(rounded.data(), y_.data(), count * 2, cudaMemcpyDefault), "result");
    for (size_t i = 0; i < count; ++i) values[i] = float_from_half(rounded[i]);
    return values;
  }

 private:
  static constexpr int64_t kCacheBytes = 200 << 20;
  static constexpr int32_t kNormCols = 4096;

  // Products that follow each other, as in a decode step; an invalid graph for an algorithm that
  // does not take so few tokens.
  CudaGraph record(const TimedProduct& product, int32_t num_tokens, bool in_layer) {
    return record_graph(stream_, [&](cudaStream_t stream) {
      for (int32_t i = 0; i < repeats(num_tokens); ++i) {
        if (in_layer) {
          rms_norm_cuda({hidden_.as<float>(), norm_weight_.as<float>(), normed_.as<F16>(),
                         num_tokens, kNormCols, kNormCols, kNormCols, 1e-5F},
                        stream);
        }
        product(args_of(next_copy_++ % copies_, num_tokens), stream);
      }
    });
  }

  GemmArgs args_of(int64_t copy, int32_t num_tokens) const {
    return {.weight = weights_.as<uint16_t>() + copy * weight_elems_,
            .x = x_.as<uint16_t>(),
            .y = y_.data(),
            .rows = problem_.rows,
            .cols = problem_.cols,
            .y_stride = problem_.rows,
            .num_tokens = num_tokens,
            .epilogue = problem_.epilogue};
  }

  static int32_t repeats(int32_t num_tokens) { return num_tokens <= 256 ? 24 : 4; }

  const GemmProblem problem_;
  const int64_t weight_elems_, copies_;
  int64_t next_copy_ = 0;
  CudaStream stream_;
  DeviceBuffer weights_, x_, y_;
  DeviceBuffer norm_weight_, hidden_, normed_;
};

}  // namespace baton
