// How fast a model's weights come from a file on disk into a GPU, by the loader that a worker uses:
// cold (the file has been dropped from the page cache) and warm, beside the slower of what the disk
// and the link to the GPU can do, measured in turn with the loads.
//
//   weight_load_bench MODEL [--write bench/shapes/llama-3.1-8b --dtype BF16 --gib 6]
//
// --write makes MODEL first, with random weights: a folder for BF16, a GGUF file for Q8_0 ....
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/disk_rate.h"
#include "bench/dummy_model_file.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "model/cuda_weights.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Dtype parse_dtype(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Dtype::kQ6_K); ++i) {
    if (name == dtype_info(static_cast<Dtype>(i)).name) return static_cast<Dtype>(i);
  }
  throw ConfigError("--dtype: got " + name + ", want BF16, Q8_0, Q4_K, ...");
}

double link_rate() {
  constexpr int64_t kBytes = 256 << 20;
  const PinnedBuffer from(kBytes);
  const DeviceBuffer to(kBytes);
  CudaStream stream;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    cuda_check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDefault, stream.get()),
               "copy");
    stream.synchronize();
    best = std::max(best, kBytes / seconds_since(start));
  }
  return best;
}

std::vector<std::string> weight_files(const std::string& path) {
  std::vector<std::string> files;
  const ModelSource source = open_model(path);
  for (const auto& file : source.store.files) files.push_back(file->path());
  return files;
}

class Bench {
 public:
  Bench(const std::string& path, int32_t threads)
      : path_(path),
        files_(weight_files(path)),
        backend_(make_cuda_backend(0, {.load_threads = threads})),
        link_(link_rate()) {
    std::printf("link, pinned host to GPU: %.1f GB/s\n", link_ / 1e9);
  }

  void measure_disk() {
    const auto bytes =
        std::min<int64_t>(static_cast<int64_t>(std::filesystem::file_size(files_[0])), 2LL << 30);
    for (const auto& [threads, mib] : {std::pair{16, 2}, {8, 16}}) {
      const double rate = direct_read_rate(files_[0], bytes, threads, int64_t{mib} << 20);
      std::printf("disk, direct reads, %2d of %2d MiB: %.2f GB/s\n", threads, mib, rate / 1e9);
      disk_ = std::max(disk_, rate);
    }
  }

  void load(bool cold) {
    double cached = 0;
    for (const std::string& file : files_) {
      if (cold) drop_from_page_cache(file);
      cached += cached_fraction(file) / static_cast<double>(files_.size());
    }
    const auto start = Clock::now();
    ModelSource source = open_model(path_);
    const auto bytes = static_cast<double>(weight_bytes(source.store));
    const double opened = seconds_since(start);
    const Weights weights = load_cuda_weights(source, *backend_, {});
    const double taken = seconds_since(start);
    const double bar = cold && disk_ > 0 ? std::min(disk_, link_) : link_;
    std::printf("%s, %3.0f %% cached: %6.3f s (%.3f to open), %6.2f GB/s of the file, %.2f of %s\n",
                cold ? "cold" : "warm", cached * 100, taken, opened, bytes / taken / 1e9,
                bytes / taken / bar, bar < link_ ? "the disk" : "the link");
    std::fflush(stdout);
  }

 private:
  const std::string path_;
  const std::vector<std::string> files_;
  const std::unique_ptr<CudaBackend> backend_;
  const double link_;
  double disk_ = 0;
};

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app{"Times loading weights from a disk into a GPU"};
  std::string path, shape, dtype = "BF16";
  double gib = 6;
  int32_t rounds = 2, threads = 0;
  app.add_option("MODEL", path, "Hugging Face folder or GGUF file")->required();
  app.add_option("--write", shape, "Make MODEL first, of the shapes in this folder's config.json");
  app.add_option("--dtype", dtype, "Of the weights written: BF16, Q8_0, Q4_K, ...");
  app.add_option("--gib", gib, "At most so much is written, by leaving out layers");
  app.add_option("--rounds", rounds, "Cold loads, each behind a measurement of the disk");
  app.add_option("--threads", threads, "That read; 0: the worker's choice");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!shape.empty()) {
      const auto start = baton::Clock::now();
      const auto bytes_max = static_cast<int64_t>(gib * (1 << 30));
      baton::write_dummy_model(shape, baton::parse_dtype(dtype), bytes_max, path);
      std::printf("%s of %s written in %.1f s\n", path.c_str(), dtype.c_str(),
                  baton::seconds_since(start));
    }
    baton::Bench bench(path, threads);
    for (int32_t round = 0; round < rounds; ++round) {
      bench.measure_disk();
      bench.load(true);
    }
    for (int32_t round = 0; round < 3; ++round) bench.load(false);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weight_load_bench: %s\n", error.what());
    return 1;
  }
}
