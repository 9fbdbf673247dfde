// A step's work on the GPU, enqueued and not waited for: one copy of what was staged, the forward
// pass, logits, sampling; as a graph where the step is of decodes alone. Knows no slots and no
// choices. Engine thread only.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/graph.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "model/forward.h"
#include "model/graph_buckets.h"
#include "model/step_staging.h"
#include "model/weights.h"

namespace baton {

// One step computes while the next is prepared and enqueued; a third would only be enqueued sooner.
inline constexpr int32_t kStepsInFlight = 2;

// What a CUDA engine is built from; it becomes the owner of all but the pools and the sink.
struct CudaEngineParts {
  ModelConfig config;
  KvLayout layout;
  std::unique_ptr<CudaBackend> backend;
  Weights weights;
  std::vector<const PagePool*> pools;  // [kv_groups], in device memory, borrowed
  LayerSink* sink = nullptr;           // borrowed, may be null
  int32_t step_tokens_max = 0;
  int64_t linger_us = 0;
  int32_t running_max = 0;
  int32_t context_len = 0;
  std::string graphs;  // on, lazy, off
};

// Where the GPU begins to compute a step.
struct StepBegun {
  CudaEvent event{true};
  int64_t at_us = 0;  // not before, as Clock counts
  void record(cudaStream_t stream) {
    at_us = SystemClock().now_us();
    event.record(stream);
  }
};

class CudaForward {
 public:
  // Borrows `parts`. `recorder` is told of each layer while a step is enqueued outside of a graph.
  CudaForward(const CudaEngineParts& parts, LayerSink* recorder);

  // Steps enqueued from now on outside of a graph record it behind their last layer; null: nothing.
  void record_before_logits(CudaEvent* event) { before_logits_ = event; }

  // Captures the graphs of all batch sizes, if they are wanted at start. Nothing is in flight.
  void capture(const std::function<void(double)>& progress);

  // Most rows of logits, and most samples, of one sample().
  int32_t rows_max() const { return rows_max_; }

  // Enqueues a step that samples: one result for each of `params`. `slot` in [0, kStepsInFlight):
  // whose staging memory; that slot's last step has ended. `begun` is recorded where the GPU begins
  // to compute. REQUIRES: holds(edits).
  void sample(const StepBatch& batch, std::span<const SampleParams> params, const StepEdits& edits,
              int32_t slot, bool may_use_graph, const StepInput& step, StepBegun& begun);
  bool holds(const StepEdits& edits) const { return staging_->holds(edits); }
  // Enqueues a step without logits; logits() of its logit_rows [begin, begin + count) may follow.
  void hidden_states(const StepBatch& batch, int32_t slot, const StepInput& step, StepBegun& begun);
  const float* logits(int32_t begin, int32_t count);

  // Device memory, until the next step: [rows_max], [rows_max, kTopTokensMax].
  const SampleResult* results() const { return results_.as<SampleResult>(); }
  const SampleResult* tops() const { return tops_.as<SampleResult>(); }

 private:
  void stage(const StepBatch& batch, std::span<const SampleParams> params, const StepEdits& edits,
             const StepShape& shape, int32_t slot);
  void copy_staged(int32_t slot);
  void enqueue(const StepShape& shape, const StepInput& step);
  void run_bucket(int32_t bucket, const StepInput& step);
  void add_planner(const KvGroup& group, int32_t sequences_max);

  const CudaEngineParts& parts_;
  const cudaStream_t stream_;
  const std::vector<int32_t> buckets_;
  const int32_t rows_max_;
  Forward<Bf16> forward_;
  std::vector<std::unique_ptr<AttentionPlanner>> planners_;  // [kv_groups]
  std::vector<DeviceBuffer> scratch_;                        // theirs
  std::unique_ptr<StepStaging> staging_;
  CudaEvent* before_logits_ = nullptr;
  std::array<PinnedBuffer, kStepsInFlight> staged_host_;
  DeviceBuffer staged_device_;
  DeviceBuffer tokens_;   // int32 [step_tokens_max]
  DeviceBuffer results_;  // SampleResult [rows_max]
  DeviceBuffer tops_;     // SampleResult [rows_max, kTopTokensMax]
  DeviceBuffer edited_;   // float32 [rows_max, vocab] logits as they are sampled, where they differ
  DeviceBuffer sample_scratch_;
  StagedStep staged_;
  std::map<int32_t, CudaGraph> graphs_;  // by bucket
};

}  // namespace baton
