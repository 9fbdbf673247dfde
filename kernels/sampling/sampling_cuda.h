// Sampling on a GPU, equal to the CPU's (model/sampler.h) for equal logits, and the hand-over of
// sampled tokens from one step to the next without the host. Only enqueue on `stream`; may be
// captured in a graph.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/sampling/sampling.h"

namespace baton {

//   logits   float32 [rows, vocab_size], 16-byte aligned; vocab_size at most kSampleVocabMax
//   params   [num_samples]; several may name one row, each with edits of its own
//   scratch  sample_scratch_bytes(num_samples), 16-byte aligned
//   results  [num_samples]
//   tops     [num_samples, kTopTokensMax] likeliest first, ties by lowest id; the first num_top are
//            written, as far as the vocabulary goes
struct SampleArgs {
  const float* logits = nullptr;
  int32_t vocab_size = 0;
  const SampleParams* params = nullptr;
  int32_t num_samples = 0;
  std::byte* scratch = nullptr;
  SampleResult* results = nullptr;
  SampleResult* tops = nullptr;
};
int64_t sample_scratch_bytes(int32_t num_samples);
void sample_cuda(const SampleArgs& args, cudaStream_t stream);

// Fills RowEdits::counts anew. `entries`: [num_entries] no token twice, `count` as there; memory of
// the GPU or pinned memory of the host.
//   counts  int32 [vocab_size]
void build_counts_cuda(const TokenCount* entries, int32_t num_entries, int32_t* counts,
                       int32_t vocab_size, cudaStream_t stream);

// tokens[i] = source[i], or the result of sample s of the step before where source[i] = -1 - s.
//   source, tokens  int32 [num_tokens]
void resolve_tokens_cuda(const int32_t* source, const SampleResult* last, int32_t* tokens,
                         int32_t num_tokens, cudaStream_t stream);

}  // namespace baton
