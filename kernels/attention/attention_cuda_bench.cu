// attention_cuda_bench: attention of the 8B shape (32 query heads on 8 KV heads of 128, pages of 64
// tokens for 16 layers, in random order), and of other head sizes, on the GPU at hand. Decode in
// TB/s of K and V, beside a bare loop that reads the same pages; prefill in TFLOP/s of the causal
// half. Times are medians of replays of a graph with one launch a layer, so that every launch finds
// its K and V outside L2; candidate and floor take turns.
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "kernels/attention/attention_timing.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/cuda/memory.h"

namespace baton {
namespace {

constexpr int32_t kHeads = 32, kKvHeads = 8, kPageTokens = 64, kLayers = 16, kPages = 4096;
constexpr int32_t kReplays = 15;

__global__ void fill_random(uint32_t* to, int64_t words, uint32_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < words;
       i += step) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed;
    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    x ^= x >> 16;
    // Two bf16 of magnitude 0.5 to 2.
    to[i] = (x & 0x80ff80ff) | (0x3f003f00 + (x & 0x00800080));
  }
}

// Reads one layer's slice of every page of the tables.
__global__ void read_pages(const std::byte* layer, int64_t page_bytes, int64_t slice_bytes,
                           const int32_t* pages, int32_t num_pages, uint4* sink) {
  constexpr int64_t kPiece = 16 << 10;
  const int64_t pieces = slice_bytes / kPiece;
  uint4 sum = {};
  for (int64_t i = blockIdx.x; i < num_pages * pieces; i += gridDim.x) {
    const auto* from = reinterpret_cast<const uint4*>(layer + pages[i / pieces] * page_bytes +
                                                      i % pieces * kPiece);
    uint4 v[kPiece / 16 / 256];
#pragma unroll
    for (int k = 0; k < kPiece / 16 / 256; ++k) v[k] = __ldcs(from + threadIdx.x + k * 256);
#pragma unroll
    for (const uint4& x : v) {
      sum.x ^= x.x;
      sum.y ^= x.y;
      sum.z ^= x.z;
      sum.w ^= x.w;
    }
  }
  if (sum.x == 0x12345678 && sum.y == 1) *sink = sum;
}

class Bench {
 public:
  explicit Bench(int32_t head_dim)
      : dim_(head_dim),
        num_sms_(open_cuda_device(0).num_sms),
        slice_bytes_(4ll * kKvHeads * kPageTokens * head_dim),
        pages_(slice_bytes_ * kLayers * kPages),
        q_(2ll * kMaxRows * kHeads * head_dim),
        y_(q_.bytes()) {
    fill_random<<<4096, 256>>>(pages_.as<uint32_t>(), pages_.bytes() / 4, 1);
    fill_random<<<4096, 256>>>(q_.as<uint32_t>(), q_.bytes() / 4, 2);
    cuda_check(cudaDeviceSynchronize(), "fill");
  }

  // `count` sequences of `num_tokens` new tokens behind `first_pos` cached ones.
  void measure(int32_t count, int32_t num_tokens, int32_t first_pos) {
    const TimedAttention attention({kHeads, kKvHeads, dim_, 0},
                                   {.base = pages_.data(),
                                    .page_bytes = slice_bytes_ * kLayers,
                                    .page_tokens = kPageTokens,
                                    .num_kv_heads = kKvHeads,
                                    .head_dim = dim_,
                                    .dtype = Dtype::kBF16},
                                   kPages, num_sms_, count, num_tokens, first_pos, q_.as<Bf16>(),
                                   y_.as<Bf16>());
    const bool decode = num_tokens <= kDecodeMaxTokens;
    const int32_t layers = decode ? kLayers : 4;
    std::vector<CudaGraph> graphs;
    graphs.push_back(record_graph(stream_, [&](cudaStream_t stream) {
      for (int32_t layer = 0; layer < layers; ++layer)
        attention.enqueue(slice_bytes_ * layer, stream);
    }));
    graphs.push_back(record_graph(stream_, [&](cudaStream_t stream) {
      for (int32_t layer = 0; layer < layers; ++layer) {
        read_pages<<<num_sms_ * 8, 256, 0, stream>>>(
            pages_.data() + slice_bytes_ * layer, slice_bytes_ * kLayers, slice_bytes_,
            attention.tables(), count * attention.pages_each(), y_.as<uint4>());
      }
    }));
    const std::vector<double> times = time_graphs(stream_, graphs, kReplays);
    const double us = times[0] / layers, read_us = times[1] / layers;
    if (decode) {
      const double bytes = 4.0 * kKvHeads * dim_ * (first_pos + num_tokens) * count;
      std::printf(
          "decode  D=%-3d B=%-3d context %5d: %8.2f us  %5.2f TB/s (%.2f%% of a bare read: "
          "%8.2f us  %5.2f TB/s)\n",
          dim_, count, first_pos + num_tokens, us, bytes / us * 1e-6, 100 * read_us / us, read_us,
          bytes / read_us * 1e-6);
    } else {
      const double keys = num_tokens * (first_pos + (num_tokens + 1) / 2.0);
      const double ops = 4.0 * kHeads * dim_ * keys * count;
      std::printf("prefill D=%-3d %2d x %5d behind %5d: %9.1f us  %6.1f TFLOP/s\n", dim_, count,
                  num_tokens, first_pos, us, ops / us * 1e-6);
    }
    std::fflush(stdout);
  }

 private:
  static constexpr int32_t kMaxRows = 16384;

  const int32_t dim_, num_sms_;
  const int64_t slice_bytes_;
  DeviceBuffer pages_, q_, y_;
  CudaStream stream_;
};

void run() {
  std::printf("%s\n", open_cuda_device(0).name.c_str());
  {
    Bench bench(128);
    for (const auto& [count, context] : {std::pair{1, 1024},
                                         {4, 1024},
                                         {32, 1024},
                                         {128, 1024},
                                         {128, 2048},
                                         {256, 1024},
                                         {1, 32768},
                                         {8, 32768}}) {
      bench.measure(count, 1, context - 1);
    }
    bench.measure(32, 4, 2044);
    for (const int32_t tokens : {512, 2048, 8192}) bench.measure(1, tokens, 0);
    bench.measure(16, 512, 0);
    bench.measure(1, 2048, 6144);
  }
  for (const int32_t head_dim : {64, 80, 96, 256}) {
    Bench bench(head_dim);
    bench.measure(128, 1, 2047);
    for (const int32_t tokens : {2048, 8192}) bench.measure(1, tokens, 0);
  }
}

}  // namespace
}  // namespace baton

int main() {
  return baton::run_bench(baton::run);
}
