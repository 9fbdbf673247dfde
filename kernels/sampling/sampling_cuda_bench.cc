// sampling_cuda_bench: time of sampling a batch from logits of 128,256 tokens. The floor is one
// read of the logits, and for rows that are changed first the writing of the changed row and the
// reading of its mask and counts.
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/sampling/sampling_cuda.h"

namespace baton {
namespace {

constexpr int32_t kVocab = 128256;
constexpr int32_t kBatchMax = 256;
constexpr int32_t kBiases = 300;
constexpr int kRepeats = 16, kRounds = 5;
constexpr double kReadBytesPerSecond = 4.65e12;

// What changes rows: for each a table of counts in which every hundredth token was seen.
struct Edits {
  Edits() {
    std::vector<int32_t> seen(static_cast<size_t>(kVocab) * kBatchMax);
    for (size_t i = 0; i < seen.size(); i += 100) seen[i] = 2;
    counts = on_gpu(seen);
    std::vector<TokenBias> biases;
    for (int32_t i = 0; i < kBiases; ++i) biases.push_back({i * 400, 0.5F});
    biased = on_gpu(biases);
  }
  DeviceBuffer edited{int64_t{kVocab} * kBatchMax * int64_t{sizeof(float)}};
  DeviceBuffer mask = on_gpu(std::vector<uint32_t>(mask_words(kVocab), 0x77777777u));
  DeviceBuffer token = on_gpu(std::vector<int32_t>{17});
  DeviceBuffer counts, biased;

  RowEdits row(int32_t i) const {
    return {.edited = edited.as<float>() + int64_t{i} * kVocab,
            .last_token = token.as<int32_t>(),
            .repetition_penalty = 1.1F,
            .presence_penalty = 0.5F};
  }
  RowEdits penalties(int32_t i) const {
    RowEdits edits = row(i);
    edits.counts = counts.as<int32_t>() + int64_t{i} * kVocab;
    edits.counts_last = 1;
    return edits;
  }
  RowEdits masked(int32_t i) const {
    RowEdits edits = row(i);
    edits.allowed = mask.as<uint32_t>();
    return edits;
  }
  RowEdits all(int32_t i) const {
    RowEdits edits = penalties(i);
    edits.allowed = mask.as<uint32_t>();
    edits.biases = biased.as<TokenBias>();
    edits.num_biases = kBiases;
    return edits;
  }
};

struct Spec {
  const char* name;
  SampleParams params;
  RowEdits (Edits::*edits)(int32_t) const = nullptr;
  double bytes_per_token = 4;
};

void run() {
  std::printf("%s\n", open_cuda_device(0).name.c_str());
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> host(static_cast<size_t>(kVocab) * kBatchMax);
  for (float& logit : host) logit = normal(random);
  const DeviceBuffer logits = on_gpu(host);
  const DeviceBuffer scratch(sample_scratch_bytes(kBatchMax));
  const DeviceBuffer results(kBatchMax * int64_t{sizeof(SampleResult)});
  const DeviceBuffer tops(kBatchMax * kTopTokensMax * int64_t{sizeof(SampleResult)});
  const Edits edits;
  const CudaStream stream;

  const SampleParams drawn{.greedy = 0, .cut_nats = kNegligibleNats, .uniform = 0.4};
  SampleParams top_k = drawn, top_p = drawn;
  top_k.top_k = 50;
  top_p.top_p = 0.95F;
  const Spec specs[] = {{"greedy", {}},
                        {"greedy, logprob", {.num_top = 0}},
                        {"greedy, 20 logprobs", {.num_top = 20}},
                        {"temperature", drawn},
                        {"top_k 50", top_k},
                        {"top_p 0.95", top_p},
                        {"greedy, penalties", {}, &Edits::penalties, 12},
                        {"greedy, mask", {}, &Edits::masked, 8.125},
                        {"temperature, penalties", drawn, &Edits::penalties, 12},
                        {"temperature, all edits", drawn, &Edits::all, 12.125}};
  for (const int32_t batch : {1, 32, 128, 256}) {
    for (const Spec& spec : specs) {
      std::vector<SampleParams> params(static_cast<size_t>(batch), spec.params);
      std::vector<RowEdits> rows;
      for (int32_t i = 0; i < batch && spec.edits != nullptr; ++i)
        rows.push_back((edits.*spec.edits)(i));
      const DeviceBuffer device_rows = on_gpu(rows.empty() ? std::vector<RowEdits>(1) : rows);
      for (int32_t i = 0; i < batch; ++i) {
        params[static_cast<size_t>(i)].row = i;
        if (!rows.empty()) params[static_cast<size_t>(i)].edits = device_rows.as<RowEdits>() + i;
      }
      const DeviceBuffer device_params = on_gpu(params);
      const SampleArgs args{.logits = logits.as<float>(),
                            .vocab_size = kVocab,
                            .params = device_params.as<SampleParams>(),
                            .num_samples = batch,
                            .scratch = scratch.data(),
                            .results = results.as<SampleResult>(),
                            .tops = tops.as<SampleResult>()};
      const double us =
          time_repeats(stream, kRepeats, kRounds, [&](cudaStream_t on) { sample_cuda(args, on); });
      std::printf("B=%-4d %-24s %8.1f us (bytes: %.1f)\n", batch, spec.name, us,
                  spec.bytes_per_token * batch * kVocab / kReadBytesPerSecond * 1e6);
    }
  }
}

}  // namespace
}  // namespace baton

int main() {
  return baton::run_bench(baton::run);
}
