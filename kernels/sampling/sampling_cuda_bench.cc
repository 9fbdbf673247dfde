// Time of sampling a batch from logits of 128,256 tokens. The floor is one read of the logits.
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/cuda/graph_timing.h"
#include "kernels/cuda/memory.h"
#include "kernels/sampling/sampling_cuda.h"

using namespace baton;

namespace {

constexpr int32_t kVocab = 128256;
constexpr int32_t kBatchMax = 256;
constexpr int kRepeats = 16, kRounds = 5;
constexpr double kReadBytesPerSecond = 4.65e12;

}  // namespace

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> host(static_cast<size_t>(kVocab) * kBatchMax);
  for (float& logit : host) logit = normal(random);
  const DeviceBuffer logits(static_cast<int64_t>(host.size() * sizeof(float)));
  cuda_check(cudaMemcpy(logits.data(), host.data(), host.size() * sizeof(float), cudaMemcpyDefault),
             "copy");
  const DeviceBuffer params(kBatchMax * int64_t{sizeof(SampleParams)});
  const DeviceBuffer scratch(sample_scratch_bytes(kBatchMax));
  const DeviceBuffer results(kBatchMax * int64_t{sizeof(SampleResult)});
  const CudaStream stream;

  const SampleParams drawn{.greedy = 0, .cut_nats = kNegligibleNats, .uniform = 0.4};
  SampleParams top_k = drawn, top_p = drawn, greedy{.want_logprob = 1};
  top_k.top_k = 50;
  top_p.top_p = 0.95F;
  const std::pair<const char*, SampleParams> specs[] = {{"greedy, logprob", greedy},
                                                        {"temperature", drawn},
                                                        {"top_k 50", top_k},
                                                        {"top_p 0.95", top_p}};
  for (const int32_t batch : {1, 32, 128, 256}) {
    for (auto [name, spec] : specs) {
      std::vector<SampleParams> all(static_cast<size_t>(batch), spec);
      for (int32_t i = 0; i < batch; ++i) all[static_cast<size_t>(i)].row = i;
      cuda_check(cudaMemcpy(params.data(), all.data(), all.size() * sizeof(SampleParams),
                            cudaMemcpyDefault),
                 "copy");
      const SampleArgs args{.logits = logits.as<float>(),
                            .vocab_size = kVocab,
                            .params = params.as<SampleParams>(),
                            .num_samples = batch,
                            .scratch = scratch.data(),
                            .results = results.as<SampleResult>()};
      const double us =
          time_repeats(stream, kRepeats, kRounds, [&](cudaStream_t on) { sample_cuda(args, on); });
      std::printf("B=%-4d %-16s %8.1f us (one read: %.1f)\n", batch, name, us,
                  4.0 * batch * kVocab / kReadBytesPerSecond * 1e6);
    }
  }
}
