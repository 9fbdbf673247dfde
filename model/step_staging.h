// Everything that a step's kernels read, laid out in one piece of host memory, so that one copy
// brings it to the GPU. The places of the arrays follow from the step's shape alone: a graph that
// was captured for a shape finds them again. Host arithmetic only. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention/attention_plan.h"
#include "kernels/sampling/sampling.h"
#include "model/batch.h"
#include "model/step_batch.h"
#include "model/step_edits.h"

namespace baton {

// Rows that a step computes. Above what its batch holds, the rest is padding: no KV write, no
// attention, a greedy sample that nobody reads.
struct StepShape {
  int32_t tokens = 0;
  int32_t sequences = 0;
  int32_t logit_rows = 0;
  int32_t samples = 0;
};

// A staged step as the kernels find it; all pointers into device memory.
struct StagedStep {
  BatchView batch;                         // batch.tokens is set by whoever resolves source_tokens
  const int32_t* source_tokens = nullptr;  // [tokens] below 0: see token_in_flight()
  const int32_t* logit_rows = nullptr;     // [logit_rows] rows of the batch
  const SampleParams* params = nullptr;    // [samples]
  std::vector<AttentionPlan> plans;        // [kv_groups]; batch points at them
  float* edited = nullptr;                 // [samples, vocab]; set by whoever has the memory
  int64_t bytes = 0;                       // to be copied
};

class StepStaging {
 public:
  struct Limits {
    int32_t tokens = 0;
    int32_t sequences = 0;
    int32_t samples = 0;
    int32_t context_len = 0;
    int32_t vocab_size = 0;
  };
  // Everything is borrowed. `planners` and `scratch` (device): one for each kv_group.
  StepStaging(const KvLayout& layout, std::vector<const AttentionPlanner*> planners,
              std::vector<std::byte*> scratch, const Limits& limits);

  int64_t bytes_max() const;  // of the largest step
  // There is room for them. Only lists of uncommon length need more (kEditListBytes).
  bool holds(const StepEdits& edits) const;

  // Writes the step to `host`, as it will lie at `device`; both bytes_max() long, 256-byte aligned.
  // REQUIRES: holds(edits).
  void stage(const Batch& batch, const std::vector<LogitRow>& rows,
             std::span<const SampleParams> params, const StepEdits& edits, const StepShape& shape,
             std::byte* host, std::byte* device, StagedStep* staged) const;

 private:
  struct Places {  // offsets in bytes
    int64_t tokens = 0, positions = 0, logit_rows = 0, params = 0;
    std::vector<int64_t> slot_mappings, sequences, lists;  // [kv_groups]
    int64_t end = 0;                                       // of the last group's lists
  };
  Places places(const StepShape& shape) const;
  int64_t stage_sequences(const Batch& batch, size_t g, const StepShape& shape, int64_t table_at,
                          const Places& at, std::byte* host, std::byte* device) const;

  const KvLayout& layout_;
  const std::vector<const AttentionPlanner*> planners_;
  const std::vector<std::byte*> scratch_;
  const Limits limits_;
};

}  // namespace baton
