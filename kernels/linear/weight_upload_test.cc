#include "kernels/linear/weight_upload.h"

#include "kernels/cpu/testing.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::vector<Bf16> expected_bits(const RandomTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  dequantize(tensor.dtype, tensor.view().data, values.data(), tensor.rows * tensor.cols);
  return to_bf16(values);
}

int64_t count_wrong(const std::vector<Bf16>& got, const std::vector<Bf16>& want) {
  int64_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool both_nan =
        std::isnan(float_from_bfloat(got[i].bits)) && std::isnan(float_from_bfloat(want[i].bits));
    wrong += got[i].bits != want[i].bits && !both_nan;
  }
  return wrong;
}

}  // namespace

TEST_CASE("CUDA: uploaded weights of every dtype are the expanded ones, rounded to bf16") {
  if (no_gpu()) return;
  std::mt19937 random(23);
  open_cuda_device(0);
  WeightUploader uploader(3);
  for (const Dtype dtype : kAllDtypes) {
    CAPTURE(dtype_info(dtype).name);
    // The first one takes several stages.
    const RandomTensor a(random, dtype, dtype == Dtype::kF32 ? 9001 : 65, 1024);
    const RandomTensor b(random, dtype, 3, 1024);
    std::vector<Bf16> want = expected_bits(a);
    const std::vector<Bf16> rest = expected_bits(b);
    want.insert(want.end(), rest.begin(), rest.end());
    const DeviceArray<Bf16> to(want.size());
    const TensorView views[] = {a.view(), b.view()};
    uploader.upload(views, to.data(), nullptr);
    CHECK(count_wrong(to.host(), want) == 0);
  }
  const RandomTensor odd(random, Dtype::kF32, 4, 12);
  const DeviceArray<Bf16> to(48);
  const TensorView view = odd.view();
  CHECK_THROWS_AS(uploader.upload({&view, 1}, to.data(), nullptr), ConfigError);
}

TEST_CASE("CUDA: weights without data are random, of unit gain and the same every time") {
  if (no_gpu()) return;
  open_cuda_device(0);
  std::vector<std::vector<Bf16>> runs;
  for (int run = 0; run < 2; ++run) {
    WeightUploader uploader(1);
    const TensorView views[] = {{Dtype::kBF16, 50, 4096, nullptr},
                                {Dtype::kBF16, 50, 4096, nullptr}};
    const DeviceArray<Bf16> to(size_t(100) * 4096);
    uploader.upload(views, to.data(), nullptr);
    runs.push_back(to.host());
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
