#include "kernels/linear/weight_upload.h"

#include "base/status.h"
#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"
#include "kernels/linear/weight_convert.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::vector<Bf16> expected_bits(const void* data, Dtype dtype, int64_t elems) {
  std::vector<float> values(static_cast<size_t>(elems));
  dequantize(dtype, data, values.data(), elems);
  return to_bf16(values);
}
std::vector<Bf16> expected_bits(const RandomTensor& tensor) {
  return expected_bits(tensor.view().data, tensor.dtype, tensor.rows * tensor.cols);
}

// A NaN has no bits that a CPU and a GPU agree on.
int64_t count_wrong(const std::vector<Bf16>& got, const std::vector<Bf16>& want) {
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool both_nan =
        std::isnan(float_from_bfloat(got[i].bits)) && std::isnan(float_from_bfloat(want[i].bits));
    wrong += got[i].bits != want[i].bits && !both_nan;
  }
  return wrong;
}

std::shared_ptr<DeviceBuffer> poisoned(int64_t elems) {
  auto buffer = std::make_shared<DeviceBuffer>(elems * 2);
  cuda_check(cudaMemset(buffer->data(), 0xff, static_cast<size_t>(elems) * 2), "poison");
  return buffer;
}

std::vector<Bf16> host_copy(const DeviceBuffer& buffer) {
  std::vector<Bf16> values(static_cast<size_t>(buffer.bytes() / 2));
  cuda_check(cudaMemcpy(values.data(), buffer.data(), values.size() * 2, cudaMemcpyDefault),
             "copy from the device");
  return values;
}

}  // namespace

TEST_CASE("CUDA: blocks of random bits, infinite and NaN scales too, become the reference's bf16") {
  if (no_gpu()) return;
  open_cuda_device(0);
  const uint32_t seed = 41;
  std::mt19937 random(seed);
  CAPTURE(seed);
  for (const Dtype dtype : kAllDtypes) {
    if (dtype == Dtype::kBF16) continue;
    CAPTURE(dtype_info(dtype).name);
    const DtypeInfo& info = dtype_info(dtype);
    // Every 16-bit pattern comes up as a scale, about once in 1000 blocks as an infinity or a NaN.
    const int64_t elems = int64_t{60013} * info.block_elems;
    std::vector<uint8_t> blocks(static_cast<size_t>(dtype_bytes(dtype, elems)));
    for (uint8_t& byte : blocks) byte = static_cast<uint8_t>(random());
    // All of the first block's bits, scales and values, are set, and the second one's clear.
    std::fill_n(blocks.begin(), info.block_bytes, uint8_t{0xff});
    std::fill_n(blocks.begin() + info.block_bytes, info.block_bytes, uint8_t{0});
    const DeviceArray<uint8_t> from(blocks);
    const DeviceArray<Bf16> to(static_cast<size_t>(elems));
    convert_to_bf16_cuda(dtype, from.data(), to.data(), elems, nullptr);
    CHECK(count_wrong(to.host(), expected_bits(blocks.data(), dtype, elems)) == 0);
  }
}

TEST_CASE("CUDA: uploaded weights of every dtype are the expanded ones, rounded to bf16") {
  if (no_gpu()) return;
  std::mt19937 random(23);
  open_cuda_device(0);
  WeightUploader uploader(0, 3);
  struct Upload {
    std::shared_ptr<DeviceBuffer> to;
    std::vector<Bf16> want;
  };
  std::vector<RandomTensor> tensors;  // borrowed until finish()
  tensors.reserve(2 * std::size(kAllDtypes));
  std::vector<Upload> uploads;
  for (const Dtype dtype : kAllDtypes) {
    // Odd numbers of rows; some of several pieces, which do not end with a row.
    tensors.emplace_back(random, dtype, dtype == Dtype::kF32 ? 9001 : 2049, 1024 + 256);
    const RandomTensor& a = tensors.back();
    tensors.emplace_back(random, dtype, 3, 1024 + 256);
    const RandomTensor& b = tensors.back();
    Upload upload{.to = poisoned((a.rows + b.rows) * a.cols), .want = expected_bits(a)};
    const std::vector<Bf16> rest = expected_bits(b);
    upload.want.insert(upload.want.end(), rest.begin(), rest.end());
    const TensorView views[] = {a.view(), b.view()};
    uploader.upload(views, upload.to);
    uploads.push_back(std::move(upload));
  }
  const RandomTensor odd(random, Dtype::kF32, 4, 12);
  const TensorView view = odd.view();
  CHECK_THROWS_AS(uploader.upload({&view, 1}, poisoned(48)), ConfigError);
  uploader.finish({});
  for (size_t i = 0; i < uploads.size(); ++i) {
    CAPTURE(dtype_info(kAllDtypes[i]).name);
    CHECK(count_wrong(host_copy(*uploads[i].to), uploads[i].want) == 0);
  }
}

TEST_CASE("CUDA: weights without data are random, of unit gain and the same every time") {
  if (no_gpu()) return;
  open_cuda_device(0);
  std::vector<std::vector<Bf16>> runs;
  for (int run = 0; run < 2; ++run) {
    WeightUploader uploader(0, 1);
    const TensorView views[] = {{Dtype::kBF16, 50, 4096, nullptr},
                                {Dtype::kBF16, 50, 4096, nullptr}};
    const auto to = poisoned(100 * 4096);
    uploader.upload(views, to);
    uploader.finish({});
    runs.push_back(host_copy(*to));
  }
  CHECK(same_bits(runs[0], runs[1]));
  const size_t half = size_t(50) * 4096;
  CHECK(std::memcmp(runs[0].data(), runs[0].data() + half, half * 2) != 0);
  double sum = 0, squares = 0;
  for (const float value : to_floats(runs[0])) sum += value, squares += double{value} * value;
  CHECK(std::abs(sum / 100) < 1);
  CHECK(std::abs(squares / 100 - 1) < 0.02);
}

}  // namespace baton
