// The engine on one GPU. Steps are prepared and enqueued while earlier ones run; a token that is
// still being sampled is read on the GPU by the step that continues it. What a GPU does not sample
// (penalties, bias, allowed ids, bad words, alternatives' log-probabilities) comes to the host as
// its row of logits and goes through the CPU's sampler. Made by load_model. All calls from one
// thread, the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "model/cuda_forward.h"
#include "model/engine.h"
#include "model/row_reader.h"
#include "model/step_batch.h"
#include "model/step_watcher.h"

namespace baton {

class CudaEngine final : public Engine {
 public:
  // Captures the decode graphs; `progress` may be empty.
  CudaEngine(CudaEngineParts parts, const std::function<void(double)>& progress);
  ~CudaEngine() override;

  int32_t steps_in_flight_max() const override { return kStepsInFlight; }
  void submit(StepInput input) override;
  StepOutput collect() override;
  void on_step_done(std::function<void()> notify) override;

 private:
  struct Step {
    WatchedStep watched;
    StepInput input;
    std::vector<LogitRow> rows;      // point into input
    std::vector<SampleRow> samples;  // of the rows, in order
    std::vector<int32_t> host_rows;  // [rows] place in host_logits_; -1: sampled on the GPU
    StepOutput output;
    // Around what the GPU computes, the copies at both ends left out.
    StepBegun begun;
    CudaEvent computed{true};
    bool computes = false;  // there is something
    bool finished = false;  // output is complete
  };
  // Records an event behind each layer of the step being enqueued.
  class LayerEvents final : public LayerSink {
   public:
    explicit LayerEvents(cudaStream_t stream) : stream_(stream) {}
    void layer_written(const StepInput& step, int32_t layer) override;
    Step* step = nullptr;  // null: nobody wants to know

   private:
    const cudaStream_t stream_;
  };

  void begin(Step& step);
  void copy_pages(const StepInput& input);
  void tell_layers(Step& step);
  void begin_sampling(Step& step);
  void read_logits(Step& step);
  bool choose_host_rows(Step& step);
  void finish(Step& step);
  void finish_newest();
  int64_t compute_us(const Step& step) const;
  bool waits_for_host(const StepInput& input) const;
  float* host_logits(const Step& step, int32_t place);
  int32_t index_of(const Step& step) const { return static_cast<int32_t>(&step - steps_.data()); }

  CudaEngineParts parts_;
  const cudaStream_t stream_;
  LayerEvents layer_events_;
  CudaForward forward_;
  ChoiceTable choices_;
  StepBatch batch_;
  RowReader reader_;
  std::vector<SampleParams> params_;
  PinnedBuffer results_;      // SampleResult [kStepsInFlight, rows_max]
  PinnedBuffer host_logits_;  // float32 [kStepsInFlight, kHostRows, vocab]
  std::array<Step, kStepsInFlight> steps_;
  uint64_t submitted_ = 0, collected_ = 0;  // steps_[n % kStepsInFlight]
  TokensInFlight tokens_in_flight_;         // of the newest step
  std::unordered_set<int32_t> host_slots_;  // of the newest step: sampled on the host
  std::string broken_;                      // a CUDA error is for good
  SystemClock clock_;
  int64_t computed_at_us_ = 0;  // of the last step finished
  StepWatcher watcher_;         // ends first: it waits for steps_
};

}  // namespace baton
