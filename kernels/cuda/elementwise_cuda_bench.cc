// elementwise_cuda_bench: the small ops of Llama 3.1 8B at several batch sizes: microseconds in a
// graph of 16, and bytes moved over time. Reading and writing together, a GPU's memory moves 4.28
// TB/s; small batches stay in its cache.
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "kernels/activation/activation_cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/cuda/memory.h"
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/linear/weight_convert.h"
#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rope_kv/rope_kv_cuda.h"

namespace baton {
namespace {

constexpr int32_t kHidden = 4096, kInner = 14336, kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr int32_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int32_t kTokensMax = 8192, kPageTokens = 64, kRepeats = 16, kRounds = 15;

struct Buffers {
  DeviceBuffer wide{int64_t{kTokensMax} * 2 * kInner * 2};
  DeviceBuffer narrow{int64_t{kTokensMax} * kInner * 2};
  DeviceBuffer floats{int64_t{kTokensMax} * kHeadDim * 4};
  DeviceBuffer pages{int64_t{kTokensMax} * 2 * kKvHeads * kHeadDim * 2};
  DeviceBuffer indices{int64_t{kTokensMax} * 4};
};

double time_us(const Enqueue& op, const CudaStream& stream) {
  return time_repeats(stream, kRepeats, kRounds, op);
}

void report(const char* name, int32_t tokens, double us, double bytes) {
  std::printf("%-10s %5d tokens %8.2f us %6.2f TB/s\n", name, tokens, us, bytes / us / 1e6);
}

void bench(int32_t tokens, const Buffers& b, CudaStream& stream) {
  const RmsNormArgs<float, F16> norm{b.narrow.as<float>(),
                                     b.floats.as<float>(),
                                     b.wide.as<F16>(),
                                     tokens,
                                     kHidden,
                                     kHidden,
                                     kHidden,
                                     1e-5F};
  report("rms_norm", tokens, time_us([&](cudaStream_t s) { rms_norm_cuda(norm, s); }, stream),
         6.0 * tokens * kHidden);
  const ActivationArgs<Bf16, F16> activation{b.wide.as<F16>(), b.narrow.as<Bf16>(), tokens, kInner,
                                             Activation::kSilu};
  report("activation", tokens,
         time_us([&](cudaStream_t s) { activation_cuda(activation, s); }, stream),
         3.0 * tokens * kInner * 2);
  RopeKvArgs<Bf16, F16> rope{
      .qkv = b.wide.as<F16>(),
      .q = b.narrow.as<Bf16>(),
      .q_stride = kHeads * kHeadDim,
      .positions = b.indices.as<int32_t>(),
      .slot_mapping = b.indices.as<int32_t>(),
      .cos_sin = b.floats.as<float>(),
      .kv = {.base = b.pages.data(),
             .page_bytes = int64_t{2} * kKvHeads * kPageTokens * kHeadDim * 2,
             .page_tokens = kPageTokens,
             .num_kv_heads = kKvHeads,
             .head_dim = kHeadDim,
             .dtype = Dtype::kBF16},
      .num_tokens = tokens,
      .num_heads = kHeads,
      .rotary_dim = kHeadDim};
  report("rope_kv", tokens, time_us([&](cudaStream_t s) { rope_kv_cuda(rope, s); }, stream),
         2.0 * tokens * kQkv * 2);
  report("embedding", tokens,
         time_us(
             [&](cudaStream_t s) {
               embedding_cuda(b.narrow.as<F16>(), kTokensMax, kHidden, b.indices.as<int32_t>(),
                              b.wide.as<float>(), tokens, s);
             },
             stream),
         6.0 * tokens * kHidden);
}

void run() {
  std::printf("%s\n", open_cuda_device(0).name.c_str());
  const Buffers buffers;
  CudaStream stream;
  fill_random_cuda(1, 1, buffers.wide.as<Bf16>(), buffers.wide.bytes() / 2, stream.get());
  fill_random_cuda(2, 1, buffers.narrow.as<Bf16>(), buffers.narrow.bytes() / 2, stream.get());
  fill_random_cuda(3, 1, buffers.floats.as<Bf16>(), buffers.floats.bytes() / 2, stream.get());
  std::vector<int32_t> indices(kTokensMax);
  for (int32_t i = 0; i < kTokensMax; ++i) indices[i] = i;
  cuda_check(
      cudaMemcpy(buffers.indices.data(), indices.data(), indices.size() * 4, cudaMemcpyDefault),
      "indices");
  for (const int32_t tokens : {1, 32, 128, 2048, 8192}) bench(tokens, buffers, stream);
}

}  // namespace
}  // namespace baton

int main() {
  return baton::run_bench(baton::run);
}
