// linear_bench [threads]: the linear layers of SmolLM2-135M in every weight format and ISA: one
// token (decode: bound by reading the weights) and 512 tokens (prefill: bound by arithmetic).
// Layers are distinct, so that weights come from memory.
#include <cstdlib>

#include "kernels/cpu/bench_util.h"
#include "kernels/cpu/testing.h"

namespace baton {
namespace {

struct Shape {
  int64_t rows, cols;
};
constexpr Shape kLayer[] = {{576, 576},  {192, 576},  {192, 576}, {576, 576},
                            {1536, 576}, {1536, 576}, {576, 1536}};
constexpr Shape kLayer256[] = {
    {512, 512},  {256, 512},  {256, 512}, {512, 512},
    {1536, 512}, {1536, 512}, {512, 1536}};  // K formats: multiples of 256

struct Weights {
  Weights(BackendOf<float>& backend, Dtype dtype, int layers) {
    std::mt19937 random(1);
    const bool blocks_of_256 = dtype_info(dtype).block_elems == 256;
    for (int layer = 0; layer < layers; ++layer) {
      for (const Shape& shape : blocks_of_256 ? kLayer256 : kLayer) {
        add(backend, random, dtype, shape);
      }
    }
  }

  void add(BackendOf<float>& backend, std::mt19937& random, Dtype dtype, Shape shape) {
    tensors.emplace_back(random, dtype, shape.rows, shape.cols);
    weights.push_back(backend.prepare(tensors.back().view()));
    bytes += dtype_bytes(dtype, shape.rows * shape.cols);
    multiplications += shape.rows * shape.cols;
    if (dtype_info(dtype).block_elems > 1)
      tensors.back().bytes.clear();  // packed: no longer needed
  }

  std::vector<RandomTensor> tensors;
  std::vector<std::unique_ptr<LinearWeight>> weights;
  int64_t bytes = 0;
  int64_t multiplications = 0;
};

double run_seconds(BackendOf<float>& backend, const Weights& model, int32_t num_tokens, int runs) {
  std::mt19937 random(2);
  const std::vector<float> x = random_floats(random, num_tokens * int64_t{1536});
  std::vector<float> y(num_tokens * int64_t{49152});
  return best_seconds(runs, [&] {
    for (const auto& weight : model.weights) {
      backend.linear(
          {.weight = weight.get(), .x = x.data(), .y = y.data(), .num_tokens = num_tokens});
    }
  });
}

void bench_formats(int32_t threads, const std::string& isa, double floor) {
  const auto backend = make_cpu_backend(threads, isa.c_str());
  for (Dtype dtype : kAllDtypes) {
    Weights model(*backend, dtype, 24);
    const double one = run_seconds(*backend, model, 1, 5);
    const double many = run_seconds(*backend, model, 512, isa == "portable" ? 1 : 2);
    const double ops = 2.0 * 512 * model.multiplications;
    std::printf(
        "%-12s %-5s 1 token: %7.3f ms/layer %6.1f GB/s (%.2f of reading)   512 tokens: %8.2f "
        "ms/layer %7.1f GFLOP/s\n",
        isa.c_str(), dtype_info(dtype).name, one * 1e3 / 24, model.bytes / one * 1e-9,
        model.bytes / one / floor, many * 1e3 / 24, ops / many * 1e-9);
    std::fflush(stdout);
  }
}

// The default model: Q4_1 layers, Q8_0 output head (which a prompt needs for its last token alone).
void bench_smollm2(int32_t threads, const std::string& isa, double floor) {
  const auto backend = make_cpu_backend(threads, isa.c_str());
  Weights layers(*backend, Dtype::kQ4_1, 30);
  std::mt19937 random(3);
  Weights head(*backend, Dtype::kQ8_0, 0);
  head.add(*backend, random, Dtype::kQ8_0, {49152, 576});
  const double layers_1 = run_seconds(*backend, layers, 1, 20),
               head_1 = run_seconds(*backend, head, 1, 20);
  const double layers_512 = run_seconds(*backend, layers, 512, 3);
  const double bytes = static_cast<double>(layers.bytes + head.bytes);
  std::printf(
      "%-12s SmolLM2-135M, linear ops only: decode %.2f ms (layers %.2f, head %.2f) = %.0f "
      "tokens/s, "
      "%.1f GB/s, %.2f of reading; prefill of 512: %.1f ms = %.0f tokens/s\n",
      isa.c_str(), (layers_1 + head_1) * 1e3, layers_1 * 1e3, head_1 * 1e3, 1 / (layers_1 + head_1),
      bytes / (layers_1 + head_1) * 1e-9, bytes / (layers_1 + head_1) / floor,
      (layers_512 + head_1) * 1e3, 512 / (layers_512 + head_1));
  std::fflush(stdout);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  using namespace baton;
  const int32_t threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int32_t>(std::thread::hardware_concurrency());
  print_machine(threads);
  const double floor = read_bytes_per_second(threads, 100 << 20);
  std::printf("reading 100 MiB: %.1f GB/s\n", floor * 1e-9);
  for (const std::string& isa : isas_of_this_cpu()) bench_smollm2(threads, isa, floor);
  for (const std::string& isa : isas_of_this_cpu()) bench_formats(threads, isa, floor);
  return 0;
}
