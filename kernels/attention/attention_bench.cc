// attention_bench [threads]: attention of SmolLM2-135M's shape (9 query heads on 3 KV heads of 64):
// decode over a long context (bound by reading keys and values) and prefill of a prompt.
#include <cmath>
#include <cstdlib>

#include "kernels/cpu/bench_util.h"
#include "kernels/cpu/testing.h"

namespace baton {
namespace {

constexpr int32_t kHeads = 9, kKvHeads = 3, kHeadDim = 64, kPageTokens = 16;

struct Setup {
  Setup(Dtype dtype, int32_t context) {
    const int64_t elem_bytes = dtype == Dtype::kF32 ? 4 : 2;
    const int32_t num_pages = (context + kPageTokens - 1) / kPageTokens;
    kv = {.page_bytes = 2 * elem_bytes * kKvHeads * kPageTokens * kHeadDim,
          .page_tokens = kPageTokens,
          .num_kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .dtype = dtype};
    pages.assign(num_pages * kv.page_bytes,
                 std::byte{0x3c});  // small positive numbers in every dtype
    kv.base = pages.data();
    for (int32_t i = 0; i < num_pages; ++i) block_table.push_back(num_pages - 1 - i);
  }
  std::vector<std::byte> pages;
  std::vector<int32_t> block_table;
  PagedLayer kv;
};

double run_seconds(BackendOf<float>& backend, const Setup& setup, int32_t first_pos,
                   int32_t num_tokens) {
  std::mt19937 random(1);
  const std::vector<float> q =
      random_floats(random, static_cast<int64_t>(num_tokens) * kHeads * kHeadDim);
  std::vector<float> y(q.size());
  const AttentionSequence sequence = {0, num_tokens, first_pos, setup.block_table.data()};
  return best_seconds(10, [&] {
    backend.attention({.q = q.data(),
                       .y = y.data(),
                       .q_stride = kHeads * kHeadDim,
                       .batch = {.sequences = &sequence, .num_sequences = 1},
                       .kv = setup.kv,
                       .num_heads = kHeads,
                       .scale = 1 / std::sqrt(static_cast<float>(kHeadDim))});
  });
}

void bench(BackendOf<float>& backend, Dtype dtype, double floor) {
  for (int32_t context : {512, 2048, 8192}) {
    const Setup setup(dtype, context);
    const double decode = run_seconds(backend, setup, context - 1, 1);
    const double bytes = static_cast<double>(setup.pages.size());
    std::printf("%-12s %-4s context %5d  decode %8.1f us %6.1f GB/s (%.2f of reading)",
                backend.isa(), dtype_info(dtype).name, context, decode * 1e6, bytes / decode * 1e-9,
                bytes / decode / floor);
    if (context <= 2048) {
      const double prefill = run_seconds(backend, setup, 0, context);
      const double ops = 4.0 * kHeads * kHeadDim * context * (context + 1) / 2;
      std::printf("   prefill %8.2f ms %6.1f GFLOP/s", prefill * 1e3, ops / prefill * 1e-9);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
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
  for (const std::string& isa : isas_of_this_cpu()) {
    const auto backend = make_cpu_backend(threads, isa.c_str());
    for (Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBF16}) bench(*backend, dtype, floor);
  }
  return 0;
}
