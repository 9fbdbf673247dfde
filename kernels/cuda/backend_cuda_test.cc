#include "kernels/cuda/backend_cuda.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

int64_t free_bytes() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "memory");
  return static_cast<int64_t>(free);
}

}  // namespace

TEST_CASE(
    "CUDA backend: a tied embedding is one matrix on the GPU, right as a table and as weights") {
  if (no_gpu()) return;
  std::mt19937 random(29);
  const auto backend = make_cuda_backend(0, {.load_threads = 2});
  const RandomTensor file(random, Dtype::kBF16, 16 << 10, 1024);
  const auto warm_up = backend->prepare(file.view());  // takes the uploader's buffers
  const int64_t before = free_bytes();
  const auto table = backend->prepare_table(file.view());
  const auto head = backend->prepare(file.view());
  CHECK(before - free_bytes() < 48 << 20);
  backend->finish_loading({});

  const std::vector<int32_t> ids{5, 16383};
  const DeviceArray<int32_t> ids_device(ids);
  const DeviceArray<float> rows(size_t(2) * 1024);
  const DeviceArray<float> logits(size_t(2) * (16 << 10));
  backend->embedding(
      {.table = table.get(), .ids = ids_device.data(), .y = rows.data(), .num_tokens = 2});
  const DeviceArray<F16> x(to_half(rows.host()));  // exact, as the file is bf16
  backend->logits({.weight = head.get(), .x = x.data(), .y = logits.data(), .num_tokens = 2});
  const std::vector<float> got = logits.host();
  for (int token = 0; token < 2; ++token) {
    double square = 0;
    std::vector<float> row(1024);
    dequantize(Dtype::kBF16, static_cast<const uint8_t*>(file.view().data) + ids[token] * 2048,
               row.data(), 1024);
    for (const float value : row) square += double{value} * value;
    CHECK(got[size_t(token) * (16 << 10) + ids[token]] == doctest::Approx(square).epsilon(1e-4));
  }
}

TEST_CASE("CUDA backend: uploaded memory is complete when the call returns") {
  if (no_gpu()) return;
  const auto backend = make_cuda_backend(0);
  std::vector<float> values(100'000, 1.5F);
  const auto memory = backend->upload(values.data(), values.size() * 4);
  std::vector<float> expected = values;
  values.assign(values.size(), 0.0F);
  std::vector<float> back(values.size());
  cuda_check(cudaMemcpy(back.data(), memory->data(), back.size() * 4, cudaMemcpyDefault), "read");
  CHECK(back == expected);
}

}  // namespace baton
