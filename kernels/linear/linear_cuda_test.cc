#include "kernels/linear/linear_cuda.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/testing.h"
#include "kernels/linear/weight_convert.h"

#include "tests/doctest.h"

namespace baton {
namespace {

struct Case {
  int64_t rows, cols;
  int32_t num_tokens;
  bool bias, accumulate;
  int64_t gap = 0;  // between y's rows
};

std::unique_ptr<CudaLinearWeight> weight_on_gpu(const std::vector<Bf16>& values, int64_t rows,
                                                int64_t cols) {
  auto buffer = std::make_shared<DeviceBuffer>(static_cast<int64_t>(values.size() * 2));
  cuda_check(cudaMemcpy(buffer->data(), values.data(), values.size() * 2, cudaMemcpyDefault), "");
  return std::make_unique<CudaLinearWeight>(rows, cols, buffer);
}

void check(BackendOf<float>& cpu, CudaLinear& gpu, std::mt19937& random, const Case& c) {
  CAPTURE(c.rows);
  CAPTURE(c.cols);
  CAPTURE(c.num_tokens);
  CAPTURE(c.bias);
  CAPTURE(c.accumulate);
  const auto weight = to_bf16(random_floats(random, c.rows * c.cols));
  const auto x = rounded_to_bf16(random_floats(random, c.num_tokens * c.cols));
  const auto bias = rounded_to_bf16(random_floats(random, c.rows, 30));
  const int64_t stride = c.rows + c.gap;
  std::vector<float> expected = rounded_to_bf16(random_floats(random, c.num_tokens * stride, 100));
  const DeviceArray<Bf16> y(to_bf16(expected)), x_device(to_bf16(x));
  const DeviceArray<float> bias_device(bias);

  const auto cpu_weight = cpu.prepare({Dtype::kBF16, c.rows, c.cols, weight.data()});
  cpu.linear({cpu_weight.get(), x.data(), c.bias ? bias.data() : nullptr, expected.data(), stride,
              c.num_tokens, c.accumulate});
  const auto gpu_weight = weight_on_gpu(weight, c.rows, c.cols);
  if (!c.accumulate) {  // what is between the rows must stay; the rows hold NaN before
    std::vector<Bf16> poisoned = y.host();
    for (int32_t t = 0; t < c.num_tokens; ++t) {
      for (int64_t r = 0; r < c.rows; ++r) poisoned[t * stride + r].bits = 0xffff;
    }
    cuda_check(cudaMemcpy(y.data(), poisoned.data(), poisoned.size() * 2, cudaMemcpyDefault), "");
  }
  gpu.linear({gpu_weight.get(), x_device.data(), c.bias ? bias_device.data() : nullptr, y.data(),
              stride, c.num_tokens, c.accumulate},
             nullptr);
  CHECK(relative_error(to_floats(y.host()), expected) < 4e-3);
}

void check_logits(BackendOf<float>& cpu, CudaLinear& gpu, std::mt19937& random, int64_t rows,
                  int64_t cols, int32_t num_tokens) {
  CAPTURE(rows);
  CAPTURE(num_tokens);
  const auto weight = to_bf16(random_floats(random, rows * cols));
  const auto x = rounded_to_bf16(random_floats(random, num_tokens * cols));
  std::vector<float> expected(num_tokens * rows);
  const auto cpu_weight = cpu.prepare({Dtype::kBF16, rows, cols, weight.data()});
  cpu.logits(
      {.weight = cpu_weight.get(), .x = x.data(), .y = expected.data(), .num_tokens = num_tokens});
  const DeviceArray<Bf16> x_device(to_bf16(x));
  const DeviceArray<float> y(expected.size());
  const auto gpu_weight = weight_on_gpu(weight, rows, cols);
  gpu.logits(
      {.weight = gpu_weight.get(), .x = x_device.data(), .y = y.data(), .num_tokens = num_tokens},
      nullptr);
  CHECK(relative_error(y.host(), expected) < 1e-5);
}

// Row t of a product of any number of tokens is row t of the product of the most.
void check_rows_alone(CudaLinear& gpu, int64_t rows, int64_t cols, bool accumulate) {
  CAPTURE(rows);
  CAPTURE(cols);
  auto buffer = std::make_shared<DeviceBuffer>(rows * cols * 2);
  fill_random_cuda(1, 1, buffer->as<Bf16>(), rows * cols, nullptr);
  const CudaLinearWeight weight(rows, cols, buffer);
  constexpr int32_t kMost = kStreamTokensMax;
  const DeviceArray<Bf16> x(size_t(kMost) * cols), start(size_t(kMost) * rows),
      y(size_t(kMost) * rows);
  fill_random_cuda(2, 1, x.data(), kMost * cols, nullptr);
  fill_random_cuda(3, 1, start.data(), kMost * rows, nullptr);
  std::vector<Bf16> all;
  for (const int32_t m :
       {kMost, 127, 96, 65, 64, 63, 48, 33, 32, 31, 24, 17, 16, 15, 9, 8, 7, 2, 1}) {
    CAPTURE(m);
    cuda_check(cudaMemcpy(y.data(), start.data(), size_t(kMost) * rows * 2, cudaMemcpyDefault), "");
    gpu.linear({.weight = &weight,
                .x = x.data(),
                .y = y.data(),
                .num_tokens = m,
                .accumulate = accumulate},
               nullptr);
    std::vector<Bf16> got = y.host();
    if (m == kMost) all = got;
    const bool equal = std::memcmp(got.data(), all.data(), size_t(m) * rows * 2) == 0;
    CHECK(equal);
  }
}

}  // namespace

TEST_CASE("CUDA: linear equals the CPU's") {
  if (no_gpu()) return;
  std::mt19937 random(19);
  const auto cpu = make_cpu_backend(4);
  CudaLinear fast(open_cuda_device(0)), deterministic(open_cuda_device(0), {.deterministic = true});
  for (CudaLinear* gpu : {&fast, &deterministic}) {
    for (const int32_t num_tokens : {1, 2, 7, 8, 9, 17, 33, 64, 65, 200}) {
      check(*cpu, *gpu, random, {24, 64, num_tokens, false, false});
      check(*cpu, *gpu, random, {576, 576, num_tokens, true, false, 64});
      check(*cpu, *gpu, random, {128, 1536, num_tokens, false, true});
      check(*cpu, *gpu, random, {1000, 4096, num_tokens, true, true, 8});
      check(*cpu, *gpu, random, {200, 72, num_tokens, true, true, 8});
      check_logits(*cpu, *gpu, random, 1003, 256, num_tokens);
      check_logits(*cpu, *gpu, random, 4096, 1024, num_tokens);
    }
  }
}

TEST_CASE("CUDA: a row of a deterministic linear does not depend on the number of rows") {
  if (no_gpu()) return;
  CudaLinear gpu(open_cuda_device(0), {.deterministic = true});
  check_rows_alone(gpu, 6144, 4096, false);
  check_rows_alone(gpu, 4096, 4096, true);
  check_rows_alone(gpu, 28672, 4096, false);
  check_rows_alone(gpu, 4096, 14336, true);
  check_rows_alone(gpu, 576, 1536, true);
  check_rows_alone(gpu, 3001, 192, false);
}

}  // namespace baton
