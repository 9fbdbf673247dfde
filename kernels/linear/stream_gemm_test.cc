#include "kernels/linear/stream_gemm.h"

#include <algorithm>

#include "kernels/cuda/testing.h"
#include "kernels/linear/skinny_gemm.h"
#include "kernels/linear/weight_convert.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int32_t kNumSms = 132;

// A product of up to kStreamTokensMax tokens and what the skinny kernels, themselves compared with
// the CPU's, make of it.
struct Product {
  Product(int32_t rows, int32_t cols, GemmEpilogue epilogue, int32_t gap)
      : stride(rows + gap),
        elem_bytes(has_float_result(epilogue) ? 4 : 2),
        weight(static_cast<size_t>(rows) * cols),
        x(static_cast<size_t>(kStreamTokensMax) * cols),
        bias(static_cast<size_t>(rows) * 2),
        start(static_cast<size_t>(kStreamTokensMax * stride * elem_bytes / 2)),
        y(start.size()) {
    fill_random(1, weight);
    fill_random(2, x);
    fill_random(3, bias);
    fill_random(4, start);
    if (has_half_operands(epilogue)) {
      bf16_to_half_cuda(weight.data(), int64_t{rows} * cols, nullptr);
      bf16_to_half_cuda(x.data(), int64_t{kStreamTokensMax} * cols, nullptr);
    }
    const bool biased = epilogue != GemmEpilogue::kFloat;
    args = {.weight = weight.data(),
            .x = x.data(),
            .bias = biased ? reinterpret_cast<const float*>(bias.data()) : nullptr,
            .y = y.data(),
            .y_stride = stride,
            .rows = rows,
            .cols = cols,
            .epilogue = epilogue};
    expected = results(kStreamTokensMax, [&](SmallGemmArgs product) {
      product.num_tokens = kStreamTokensMax / 2;
      skinny_gemm(product, kNumSms, nullptr);
      product.x += int64_t{product.num_tokens} * cols;
      product.y = static_cast<std::byte*>(product.y) + product.num_tokens * stride * elem_bytes;
      skinny_gemm(product, kNumSms, nullptr);
    });
  }

  static void fill_random(uint64_t seed, const DeviceArray<uint16_t>& values) {
    fill_random_cuda(seed, 1, reinterpret_cast<Bf16*>(values.data()),
                     static_cast<int64_t>(values.size()), nullptr);
  }

  // All of y, what is between and behind the rows too.
  template <typename Compute>
  std::vector<float> results(int32_t num_tokens, Compute compute) {
    cuda_check(cudaMemcpy(y.data(), start.data(), start.size() * 2, cudaMemcpyDefault), "");
    SmallGemmArgs product = args;
    product.num_tokens = num_tokens;
    compute(product);
    const std::vector<uint16_t> bits = y.host();
    std::vector<float> values(bits.size() * 2 / elem_bytes);
    if (elem_bytes == 2) {
      std::transform(bits.begin(), bits.end(), values.begin(),
                     [](uint16_t half) { return float_from_half(half); });
    } else {
      std::memcpy(values.data(), bits.data(), bits.size() * 2);
    }
    return values;
  }

  // From tokens behind which there is NaN.
  std::vector<float> streamed(int32_t num_tokens, const StreamPlan& plan) {
    const DeviceArray<uint16_t> some(x.size());
    const size_t bytes = static_cast<size_t>(num_tokens) * args.cols * 2;
    cuda_check(cudaMemcpy(some.data(), x.data(), bytes, cudaMemcpyDefault), "");
    return results(num_tokens, [&](SmallGemmArgs product) {
      product.x = some.data();
      stream_gemm(product, plan, nullptr);
    });
  }

  void check(int32_t num_tokens, const StreamPlan& plan) {
    CAPTURE(num_tokens);
    CAPTURE(plan.slices);
    CAPTURE(plan.tile_rows);
    const std::vector<float> got = streamed(num_tokens, plan);
    std::vector<float> wanted = results(0, [](const SmallGemmArgs&) {});
    for (int32_t t = 0; t < num_tokens; ++t) {
      std::copy_n(expected.begin() + t * stride, args.rows, wanted.begin() + t * stride);
    }
    CHECK(relative_error(got, wanted) < (elem_bytes == 4 ? 1e-5 : 3e-4));
  }

  int64_t stride, elem_bytes;
  DeviceArray<uint16_t> weight, x, bias, start, y;
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
  const StreamPlan plans[] = {{1, 256}, {1, 40}, {1, 128}, {2, 192}, {2, 8},
                              {2, 144}, {4, 64}, {4, 208}, {8, 256}, {8, 24}};
  for (const StreamPlan& plan : plans) {
    Product added(1000, 4096, GemmEpilogue::kAdd, 8), odd(1003, 640, GemmEpilogue::kStore, 0),
        logits(520, 1024, GemmEpilogue::kFloat, 0), shallow(200, 64, GemmEpilogue::kAdd, 0);
    for (const int32_t num_tokens : {1, 9, 16, 17, 32, 33, 64, 65, 66, 100, 127, 128}) {
      for (Product* product : {&added, &odd, &logits, &shallow}) product->check(num_tokens, plan);
    }
  }
}

TEST_CASE("CUDA: the bits of a streamed product depend on its slices alone") {
  if (no_gpu()) return;
  prepare_skinny_gemm();
  prepare_stream_gemm();
  Product added(1000, 4096, GemmEpilogue::kAdd, 0), odd(1003, 640, GemmEpilogue::kStore, 0);
  for (const StreamPlan& plan : {StreamPlan{1, 256}, {2, 144}, {4, 208}}) {
    for (Product* product : {&added, &odd}) {
      const std::vector<float> all = product->streamed(kStreamTokensMax, plan);
      for (const int32_t tile_rows : {40, 128, 160, 224}) {
        for (const int32_t num_tokens : {3, 17, 64, 65, 66, 127, 128}) {
          CAPTURE(tile_rows);
          CAPTURE(num_tokens);
          const auto some = product->streamed(num_tokens, {plan.slices, tile_rows});
          const auto bytes = static_cast<size_t>(num_tokens * product->stride) * sizeof(float);
          const bool equal = std::memcmp(some.data(), all.data(), bytes) == 0;
          CHECK(equal);
        }
      }
    }
  }
}

// Little enough for compute-sanitizer.
TEST_CASE("CUDA: small streamed products equal the skinny kernels'") {
  if (no_gpu()) return;
  prepare_skinny_gemm();
  prepare_stream_gemm();
  for (const StreamPlan& plan : {StreamPlan{1, 40}, {1, 128}, {2, 144}, {4, 24}}) {
    Product added(203, 832, GemmEpilogue::kAdd, 5), logits(520, 576, GemmEpilogue::kFloat, 0);
    for (const int32_t num_tokens : {7, 33, 65, 128}) {
      for (Product* product : {&added, &logits}) product->check(num_tokens, plan);
    }
  }
}

TEST_CASE("CUDA: streamed products of an 8B model's shapes equal the skinny kernels'") {
  if (no_gpu()) return;
  prepare_skinny_gemm();
  prepare_stream_gemm();
  const auto check = [](int32_t rows, int32_t cols, GemmEpilogue epilogue) {
    Product product(rows, cols, epilogue, 0);
    for (const int32_t num_tokens : {16, 32, 64, 128})
      product.check(num_tokens, plan_stream_gemm(rows, cols, kNumSms));
  };
  check(6144, 4096, GemmEpilogue::kStore);
  check(4096, 4096, GemmEpilogue::kAdd);
  check(28672, 4096, GemmEpilogue::kStore);
  check(4096, 14336, GemmEpilogue::kAdd);
  check(32064, 4096, GemmEpilogue::kFloat);
}

}  // namespace baton
