#include "kernels/linear/linear_cuda.h"

#include <algorithm>
#include <type_traits>

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
  bool bias;
  int64_t gap = 0;  // between y's rows
};

template <typename E>
std::unique_ptr<CudaLinearWeight> weight_on_gpu(const std::vector<E>& values, int64_t rows,
                                                int64_t cols) {
  auto buffer = std::make_shared<DeviceBuffer>(static_cast<int64_t>(values.size() * 2));
  cuda_check(cudaMemcpy(buffer->data(), values.data(), values.size() * 2, cudaMemcpyDefault), "");
  constexpr bool kIsHalf = std::is_same_v<E, F16>;
  return std::make_unique<CudaLinearWeight>(
      rows, cols, kIsHalf ? MatrixInput::kNormed : MatrixInput::kActivation, buffer);
}

// Inputs that are exact in bf16 and in f16.
struct Product {
  Product(BackendOf<float>& cpu, std::mt19937& random, const Case& c)
      : weight(rounded_to_bf16(random_floats(random, c.rows * c.cols))),
        x(rounded_to_bf16(random_floats(random, c.num_tokens * c.cols))),
        bias(random_floats(random, c.rows, 30)),
        bias_device(bias),
        stride(c.rows + c.gap) {
    bits_of_cpu = to_bf16(weight);
    cpu_weight = cpu.prepare({Dtype::kBF16, c.rows, c.cols, bits_of_cpu.data()});
  }
  LinearArgs<float> cpu_args(const Case& c, std::vector<float>& y) const {
    return {cpu_weight.get(), x.data(), c.bias ? bias.data() : nullptr,
            y.data(),         stride,   c.num_tokens};
  }
  const float* gpu_bias(const Case& c) const { return c.bias ? bias_device.data() : nullptr; }

  std::vector<float> weight, x, bias;
  DeviceArray<float> bias_device;
  int64_t stride;
  std::vector<Bf16> bits_of_cpu;
  std::unique_ptr<LinearWeight> cpu_weight;
};

void check_linear(BackendOf<float>& cpu, CudaLinear& gpu, std::mt19937& random, const Case& c) {
  const Product product(cpu, random, c);
  std::vector<float> expected(c.num_tokens * product.stride, 7.0F);
  cpu.linear(product.cpu_args(c, expected));
  // What is between the rows must stay; the rows hold NaN before.
  std::vector<float> before(expected.size(), 7.0F);
  for (int32_t t = 0; t < c.num_tokens; ++t)
    std::fill_n(before.begin() + t * product.stride, c.rows, NAN);
  const DeviceArray<F16> y(to_half(before)), x(to_half(product.x));
  const auto weight = weight_on_gpu(to_half(product.weight), c.rows, c.cols);
  gpu.linear({weight.get(), x.data(), product.gpu_bias(c), y.data(), product.stride, c.num_tokens},
             nullptr);
  CHECK(relative_error(to_floats(y.host()), expected) < 6e-4);
}

void check_add(BackendOf<float>& cpu, CudaLinear& gpu, std::mt19937& random, const Case& c) {
  const Product product(cpu, random, c);
  std::vector<float> expected = random_floats(random, c.num_tokens * product.stride, 100);
  const DeviceArray<float> y(expected);
  cpu.add_linear(product.cpu_args(c, expected));
  const DeviceArray<Bf16> x(to_bf16(product.x));
  const auto weight = weight_on_gpu(to_bf16(product.weight), c.rows, c.cols);
  gpu.add_linear(
      {weight.get(), x.data(), product.gpu_bias(c), y.data(), product.stride, c.num_tokens},
      nullptr);
  CHECK(relative_error(y.host(), expected) < 1e-5);
}

void check_logits(BackendOf<float>& cpu, CudaLinear& gpu, std::mt19937& random, const Case& c) {
  const Product product(cpu, random, c);
  std::vector<float> expected(c.num_tokens * product.stride);
  cpu.logits(product.cpu_args(c, expected));
  const DeviceArray<F16> x(to_half(product.x));
  const DeviceArray<float> y(expected.size());
  const auto weight = weight_on_gpu(to_half(product.weight), c.rows, c.cols);
  gpu.logits({weight.get(), x.data(), product.gpu_bias(c), y.data(), product.stride, c.num_tokens},
             nullptr);
  CHECK(relative_error(y.host(), expected) < 1e-5);
}

void check_all(BackendOf<float>& cpu, CudaLinear& gpu, std::mt19937& random, const Case& c) {
  CAPTURE(c.rows);
  CAPTURE(c.cols);
  CAPTURE(c.num_tokens);
  CAPTURE(c.bias);
  check_linear(cpu, gpu, random, c);
  check_add(cpu, gpu, random, c);
  if (c.gap == 0) check_logits(cpu, gpu, random, c);
}

// Row t of a product of `fewest` tokens or more is row t of the product of the most.
template <typename Multiply>
void check_rows_alone(int64_t rows, int64_t elem_bytes, int32_t fewest, Multiply multiply) {
  CAPTURE(rows);
  constexpr int32_t kMost = kStreamTokensMax;
  const DeviceArray<std::byte> start(size_t(kMost) * rows * elem_bytes), y(start.size());
  cuda_check(cudaMemset(start.data(), 0, start.size()), "");
  std::vector<std::byte> all;
  for (const int32_t m :
       {kMost, 127, 96, 66, 65, 64, 63, 48, 33, 32, 31, 24, 17, 16, 15, 9, 8, 7, 2, 1}) {
    if (m < fewest) break;
    CAPTURE(m);
    cuda_check(cudaMemcpy(y.data(), start.data(), start.size(), cudaMemcpyDefault), "");
    multiply(m, y.data());
    std::vector<std::byte> got = y.host();
    if (m == kMost) all = got;
    const bool equal = std::memcmp(got.data(), all.data(), size_t(m) * rows * elem_bytes) == 0;
    CHECK(equal);
  }
}

void check_rows_alone(CudaLinear& gpu, int64_t rows, int64_t cols, bool add, int32_t fewest = 1) {
  CAPTURE(cols);
  auto buffer = std::make_shared<DeviceBuffer>(rows * cols * 2);
  const DeviceArray<uint16_t> x(size_t(kStreamTokensMax) * cols);
  auto* x_bits = reinterpret_cast<Bf16*>(x.data());
  fill_random_cuda(1, 1, buffer->as<Bf16>(), rows * cols, nullptr);
  fill_random_cuda(2, 1, x_bits, kStreamTokensMax * cols, nullptr);
  if (add) {
    const CudaLinearWeight weight(rows, cols, MatrixInput::kActivation, buffer);
    return check_rows_alone(rows, 4, fewest, [&](int32_t m, std::byte* y) {
      gpu.add_linear({&weight, x_bits, nullptr, reinterpret_cast<float*>(y), 0, m}, nullptr);
    });
  }
  bf16_to_half_cuda(buffer->data(), rows * cols, nullptr);
  bf16_to_half_cuda(x.data(), kStreamTokensMax * cols, nullptr);
  const CudaLinearWeight weight(rows, cols, MatrixInput::kNormed, buffer);
  check_rows_alone(rows, 2, fewest, [&](int32_t m, std::byte* y) {
    gpu.linear(
        {&weight, reinterpret_cast<const F16*>(x.data()), nullptr, reinterpret_cast<F16*>(y), 0, m},
        nullptr);
  });
}

}  // namespace

TEST_CASE("CUDA: linear equals the CPU's") {
  if (no_gpu()) return;
  std::mt19937 random(19);
  const auto cpu = make_cpu_backend(4);
  CudaLinear fast(open_cuda_device(0)), deterministic(open_cuda_device(0), {.deterministic = true});
  for (CudaLinear* gpu : {&fast, &deterministic}) {
    for (const int32_t num_tokens : {1, 2, 7, 8, 9, 17, 33, 64, 65, 128, 200}) {
      check_all(*cpu, *gpu, random, {24, 64, num_tokens, false});
      check_all(*cpu, *gpu, random, {576, 576, num_tokens, true, 64});
      check_all(*cpu, *gpu, random, {128, 1536, num_tokens, false});
      check_all(*cpu, *gpu, random, {1000, 4096, num_tokens, true, 8});
      check_all(*cpu, *gpu, random, {200, 72, num_tokens, true, 8});
      check_all(*cpu, *gpu, random, {1003, 256, num_tokens, false});
    }
  }
}

TEST_CASE("CUDA: bf16 weights become the same numbers in f16, or its largest or smallest ones") {
  if (no_gpu()) return;
  std::mt19937 random(31);
  std::vector<float> values = rounded_to_bf16(random_floats(random, 4096));
  const std::vector<float> special = {6.1035e-5F, 1e-5F,  1e-9F, -65280.0F,
                                      7e4F,       -1e30F, 0.0F,  -0.0F};
  const std::vector<float> want = {0, 0, 0, -65280.0F, 65504.0F, -65504.0F, 0.0F, -0.0F};
  const std::vector<float> rounded = rounded_to_bf16(special);
  values.insert(values.end(), rounded.begin(), rounded.end());
  const DeviceArray<Bf16> array(to_bf16(values));
  bf16_to_half_cuda(array.data(), static_cast<int64_t>(values.size()), nullptr);
  const std::vector<Bf16> bits = array.host();
  for (size_t i = 0; i < values.size(); ++i) {
    const float got = float_from_half(bits[i].bits);
    if (i >= 4096 + 3) {
      CHECK(got == want[i - 4096]);
    } else {
      CHECK(std::fabs(got - values[i]) <= (std::fabs(values[i]) < 0x1p-14F ? 0x1p-25F : 0.0F));
    }
  }
}

TEST_CASE("CUDA: a row of a linear does not depend on the number of rows of its bucket") {
  if (no_gpu()) return;
  CudaLinear gpu(open_cuda_device(0));
  check_rows_alone(gpu, 6144, 4096, false, 65);
  check_rows_alone(gpu, 4096, 4096, true, 65);
  check_rows_alone(gpu, 28672, 4096, false, 65);
  check_rows_alone(gpu, 4096, 14336, true, 65);
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
