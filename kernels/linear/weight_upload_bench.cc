// weight_upload_bench [threads]: how fast weights go from host memory to the GPU as bf16, by dtype.
// The bar is the PCIe link: 55 GB/s on an H200, of the file's bytes, which cross it as they are.
// bench/weight_load_bench times whole models from files.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/linear/weight_upload.h"

namespace baton {
namespace {

constexpr int64_t kRows = 128 << 10, kCols = 4096;

void bench(Dtype dtype, int32_t threads) {
  const int64_t file_bytes = dtype_bytes(dtype, kRows * kCols);
  const std::vector<uint8_t> file(static_cast<size_t>(file_bytes), uint8_t{1});
  const auto to = std::make_shared<DeviceBuffer>(kRows * kCols * 2);
  const TensorView view{dtype, kRows, kCols, file.data()};
  double best_s = 1e9;
  for (int round = 0; round < 3; ++round) {
    WeightUploader uploader(0, threads);
    const auto begin = std::chrono::steady_clock::now();
    uploader.upload({&view, 1}, to);
    uploader.finish({});
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best_s = std::min(best_s, taken.count());
  }
  std::printf("%-5s %2d threads: %6.1f GB/s of the file, %6.1f GB/s of bf16\n",
              dtype_info(dtype).name, threads, file_bytes / best_s / 1e9,
              kRows * kCols * 2 / best_s / 1e9);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    baton::open_cuda_device(0);
    const int threads = argc > 1 ? std::atoi(argv[1]) : 8;
    using baton::Dtype;
    for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16, Dtype::kF32, Dtype::kQ8_0, Dtype::kQ4_0,
                              Dtype::kQ4_K, Dtype::kQ6_K}) {
      baton::bench(dtype, threads);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
