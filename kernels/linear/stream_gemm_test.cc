#include "kernels/linear/stream_gemm.h"

#include <algorithm>

#include "kernels/cuda/testing.h"
#include "kernels/linear/skinny_gemm.h"
#include "kernels/linear/weight_convert.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int32_t kNumSms = 132;

// A product of kStreamTokensMax tokens and what the skinny kernels, themselves compared with the
// CPU's, make of it.
struct Product {
  Product(int32_t rows, int32_t cols, bool is_float, bool accumulate, int32_t gap)
      : stride(rows + gap),
        elem_bytes(is_float ? 4 : 2),
        weight(static_cast<size_t>(rows) * cols),
        x(static_cast<size_t>(kStreamTokensMax) * cols),
        bias(static_cast<size_t>(rows) * 2),
        start(static_cast<size_t>(kStreamTokensMax * stride * elem_bytes / 2)),
        y(start.size()) {
    fill_random_cuda(1, 1, weight.data(), int64_t{rows} * cols, nullptr);
    fill_random_cuda(2, 1, x.data(), int64_t{kStreamTokensMax} * cols, nullptr);
    fill_random_cuda(3, 1, bias.data(), int64_t{rows} * 2, nullptr);
    fill_random_cuda(4, 1, start.data(), static_cast<int64_t>(start.size()), nullptr);
    args = {.weight = weight.data(),
            .x = x.data(),
            .bias = is_float ? nullptr : reinterpret_cast<const float*>(bias.data()),
            .y = y.data(),
            .y_stride = stride,
            .rows = rows,
            .cols = cols,
            .is_float = is_float,
            .accumulate = accumulate};
    expected = results(kStreamTokensMax, [&](SmallGemmArgs product) {
      product.num_tokens = kStreamTokensMax / 2;
      skinny_gemm(product, kNumSms, nullptr);
      product.x += int64_t{product.num_tokens} * cols;
      product.y = static_cast<std::byte*>(product.y) + product.num_tokens * stride * elem_bytes;
      skinny_gemm(product, kNumSms, nullptr);
    });
  }

  // All of y, what is between and behind the rows too.
  template <typename Compute>
  std::vector<float> results(int32_t num_tokens, Compute compute) {
    cuda_check(cudaMemcpy(y.data(), start.data(), start.size() * 2, cudaMemcpyDefault), "");
    SmallGemmArgs product = args;
    product.num_tokens = num_tokens;
    compute(product);
    const std::vector<Bf16> bits = y.host();
    if (elem_bytes == 2) return to_floats(bits);
    std::vector<float> values(bits.size() / 2);
    std::memcpy(values.data(), bits.data(), bits.size() * 2);
    return values;
  }

  void check(int32_t num_tokens, const StreamPlan& plan) {
    CAPTURE(num_tokens);
    CAPTURE(plan.slices);
    CAPTURE(plan.tile_rows);
    const std::vector<float> got = results(
        num_tokens, [&](const SmallGemmArgs& product) { stream_gemm(product, plan, nullptr); });
    std::vector<float> wanted = results(0, [](const SmallGemmArgs&) {});
    for (int32_t t = 0; t < num_tokens; ++t) {
      std::copy_n(expected.begin() + t * stride, args.rows, wanted.begin() + t * stride);
    }
    CHECK(relative_error(got, wanted) < (args.is_float ? 1e-5 : 2e-3));
  }

  int64_t stride, elem_bytes;
  DeviceArray<Bf16> weight, x, bias, start, y;
  SmallGemmArgs args;
  std::vector<float> expected;
};

}  // namespace

TEST_CASE("a plan of a streamed product is one wave where it can be, and nearly no more work") {
  for (const int64_t rows : {24, 1003, 4096, 6144, 28672, 128256}) {
    for (const int64_t cols : {64, 576, 4096, 14336}) {
      CAPTURE(rows);
      CAPTURE(cols);
      const StreamPlan plan = plan_stream_gemm(rows, cols, kNumSms);
      CHECK(is_stream_plan(plan));
      CHECK(plan.slices * 64 <= cols);
      const int64_t blocks = (rows + plan.tile_rows - 1) / plan.tile_rows * plan.slices;
      const int64_t waves = (blocks + kNumSms - 1) / kNumSms;
      if (rows <= 28672) CHECK(waves == 1);
      // Clusters of four cannot reach all multiprocessors.
      if (rows * cols >= 4096 * 4096)
        CHECK(waves * kNumSms * plan.tile_rows / plan.slices < rows * 1.2);
    }
  }
  CHECK(plan_stream_gemm(4096, 4096, kNumSms, 4).slices == 4);
  CHECK(is_stream_plan(plan_stream_gemm(100, 64, 1)));
  CHECK_FALSE(is_stream_plan({3, 64}));
  CHECK_FALSE(is_stream_plan({4, 100}));
  CHECK_FALSE(is_stream_plan({4, 264}));
}

TEST_CASE("CUDA: streamed products equal the skinny kernels' however they are cut up") {
  if (no_gpu()) return;
  prepare_skinny_gemm();
  prepare_stream_gemm();
  const StreamPlan plans[] = {{1, 256}, {1, 40}, {2, 192}, {2, 8}, {4, 64}, {8, 256}, {8, 24}};
  for (const StreamPlan& plan : plans) {
    Product added(1000, 4096, false, true, 8), odd(1003, 640, false, false, 0),
        logits(520, 1024, true, false, 0), shallow(200, 64, false, true, 0);
    for (const int32_t num_tokens : {1, 9, 16, 17, 32, 33, 64, 65, 100, 128}) {
      for (Product* product : {&added, &odd, &logits, &shallow}) product->check(num_tokens, plan);
    }
  }
}

TEST_CASE("CUDA: streamed products of an 8B model's shapes equal the skinny kernels'") {
  if (no_gpu()) return;
  prepare_skinny_gemm();
  prepare_stream_gemm();
  const auto check = [](int32_t rows, int32_t cols, bool is_float, bool accumulate) {
    Product product(rows, cols, is_float, accumulate, 0);
    for (const int32_t num_tokens : {16, 32, 64, 128})
      product.check(num_tokens, plan_stream_gemm(rows, cols, kNumSms));
  };
  check(6144, 4096, false, false);
  check(4096, 4096, false, true);
  check(28672, 4096, false, false);
  check(4096, 14336, false, true);
  check(32064, 4096, true, false);
}

}  // namespace baton
