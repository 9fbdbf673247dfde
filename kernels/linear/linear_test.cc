#include "kernels/linear/linear.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr unsigned kSeed = 20240611;

// What an 8-bit block of 32 inputs stands for.
std::vector<float> through_int8(const std::vector<float>& x) {
  std::vector<float> result(x.size());
  for (size_t block = 0; block < x.size(); block += 32) {
    float largest = 0;
    for (size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    for (size_t i = block; i < block + 32; ++i) {
      const float q = largest > 0 ? std::nearbyint(x[i] * (127.0f / largest)) : 0.0f;
      result[i] = q * (largest / 127.0f);
    }
  }
  return result;
}

std::vector<double> reference(const TensorView& w, const std::vector<float>& x, int num_tokens) {
  std::vector<float> weights(w.rows * w.cols);
  dequantize(w.dtype, w.data, weights.data(), w.rows * w.cols);
  std::vector<double> y(num_tokens * w.rows);
  for (int t = 0; t < num_tokens; ++t) {
    for (int64_t r = 0; r < w.rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < w.cols; ++c) {
        sum += static_cast<double>(weights[r * w.cols + c]) * x[t * w.cols + c];
      }
      y[t * w.rows + r] = sum;
    }
  }
  return y;
}

double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double difference = 0, norm = 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

std::vector<float> multiply(BackendOf<float>& backend, const LinearWeight& weight,
                            const std::vector<float>& x) {
  const int32_t num_tokens = static_cast<int32_t>(x.size() / weight.cols());
  std::vector<float> y(num_tokens * weight.rows(), NAN);
  backend.linear({.weight = &weight, .x = x.data(), .y = y.data(), .num_tokens = num_tokens});
  return y;
}

bool is_float(Dtype dtype) {
  return dtype_info(dtype).block_elems == 1;
}

TEST_CASE("linear agrees with plain loops, every dtype, shape and isa") {
  std::mt19937 random(kSeed);
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(2, isa.c_str());
    for (Dtype dtype : kAllDtypes) {
      for (int64_t rows : {1, 15, 16, 33, 192}) {
        const int64_t block = dtype_info(dtype).block_elems;
        for (int64_t cols : {block == 1 ? 19 : block, 3 * std::max<int64_t>(block, 64)}) {
          CAPTURE(isa);
          CAPTURE(dtype_info(dtype).name);
          CAPTURE(rows);
          CAPTURE(cols);
          const RandomTensor tensor(random, dtype, rows, cols);
          const auto weight = backend->prepare(tensor.view());
          const std::vector<float> x = random_floats(random, 7 * cols);
          const std::vector<double> want =
              reference(tensor.view(), is_float(dtype) ? x : through_int8(x), 7);
          CHECK_LT(relative_error(multiply(*backend, *weight, x), want), 2e-6);
        }
      }
    }
  }
}

TEST_CASE("a token's result has the same bits whatever else is computed with it") {
  std::mt19937 random(kSeed + 1);
  constexpr int64_t kRows = 48, kCols = 256;
  constexpr int kTokens = 70;
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto alone = make_cpu_backend(1, isa.c_str());
    const auto threaded = make_cpu_backend(3, isa.c_str());
    for (Dtype dtype : kAllDtypes) {
      const RandomTensor tensor(random, dtype, kRows, kCols);
      const auto weight = alone->prepare(tensor.view());
      const auto threaded_weight = threaded->prepare(tensor.view());
      const std::vector<float> x = random_floats(random, kTokens * kCols);
      std::vector<float> want;
      for (int t = 0; t < kTokens; ++t) {
        const std::vector<float> row(x.begin() + t * kCols, x.begin() + (t + 1) * kCols);
        const std::vector<float> y = multiply(*alone, *weight, row);
        want.insert(want.end(), y.begin(), y.end());
      }
      for (int tokens = 1; tokens <= kTokens; ++tokens) {
        CAPTURE(isa);
        CAPTURE(dtype_info(dtype).name);
        CAPTURE(tokens);
        const std::vector<float> part(x.begin(), x.begin() + tokens * kCols);
        const std::vector<float> y = multiply(*threaded, *threaded_weight, part);
        CHECK_EQ(std::memcmp(y.data(), want.data(), y.size() * sizeof(float)), 0);
      }
    }
  }
}

TEST_CASE("bias, accumulation and a wider y") {
  std::mt19937 random(kSeed + 2);
  constexpr int64_t kRows = 37, kCols = 64, kStride = 50;
  constexpr int kTokens = 5;
  for (const std::string& isa : isas_of_this_cpu()) {
    for (Dtype dtype : {Dtype::kF32, Dtype::kQ8_0}) {
      const auto backend = make_cpu_backend(2, isa.c_str());
      const RandomTensor tensor(random, dtype, kRows, kCols);
      const auto weight = backend->prepare(tensor.view());
      const std::vector<float> x = random_floats(random, kTokens * kCols);
      const std::vector<float> bias = random_floats(random, kRows);
      const std::vector<float> plain = multiply(*backend, *weight, x);
      std::vector<float> y(kTokens * kStride, 7.0f);
      backend->add_linear({.weight = weight.get(),
                           .x = x.data(),
                           .bias = bias.data(),
                           .y = y.data(),
                           .y_stride = kStride,
                           .num_tokens = kTokens});
      for (int t = 0; t < kTokens; ++t) {
        for (int64_t r = 0; r < kStride; ++r) {
          const float want = r < kRows ? 7.0f + (plain[t * kRows + r] + bias[r]) : 7.0f;
          CHECK_EQ(y[t * kStride + r], want);
        }
      }
    }
  }
}

TEST_CASE("extreme inputs: zeros stay zero, the largest weights do not saturate") {
  for (const std::string& isa : isas_of_this_cpu()) {
    CAPTURE(isa);
    const auto backend = make_cpu_backend(1, isa.c_str());
    std::mt19937 random(kSeed + 3);
    RandomTensor tensor(random, Dtype::kQ8_0, 16, 32);
    for (size_t i = 0; i < tensor.bytes.size() - 2; ++i) {
      if (i % 34 >= 2) tensor.bytes[i + 2] = 0x80;  // every weight -128
    }
    const auto weight = backend->prepare(tensor.view());
    const std::vector<float> ones(32, 1.0f), zeros(32, 0.0f);
    const std::vector<double> want = reference(tensor.view(), ones, 1);
    CHECK_LT(relative_error(multiply(*backend, *weight, ones), want), 1e-6);
    for (float y : multiply(*backend, *weight, zeros)) CHECK_EQ(y, 0.0f);
  }
}

TEST_CASE("a quantised weight whose rows are no whole blocks is refused") {
  const auto backend = make_cpu_backend(1);
  const std::vector<uint8_t> bytes(1024);
  CHECK_THROWS_AS(backend->prepare({Dtype::kQ4_K, 1, 128, bytes.data()}), ConfigError);
}

}  // namespace
}  // namespace baton
