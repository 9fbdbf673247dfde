// The engine on one GPU. Steps are prepared and enqueued while earlier ones run; a token that is
// still being sampled is read on the GPU by the step that continues it. Logits come to the host,
// and the CPU's sampler has the step, only where somebody wants more of them than samples: a
// prompt's log-probabilities, whole rows, more than kTopTokensMax alternatives, edits without room
// (StepStaging::holds). Made by load_model. All calls from one thread, the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/count_tables.h"
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
  void on_step_ending(std::function<void()> notify) override;

 private:
  struct Step {
    WatchedStep watched;
    StepInput input;
    uint64_t number = 0;  // from 1 on
    bool pushes = false;
    std::vector<CudaEvent> written;  // one for each kEventLayers layers, recorded if it pushes
    std::vector<LogitRow> rows;      // point into input
    std::vector<SampleRow> samples;  // of the rows, in order
    StepOutput output;
    // Around what the GPU computes, the copies at both ends left out.
    StepBegun begun;
    bool computes = false;  // there is something
    bool finished = false;  // output is complete
  };
  // Records the events behind the layers of the step being enqueued.
  class LayerEvents final : public LayerSink {
   public:
    LayerEvents(cudaStream_t stream, int32_t num_layers)
        : stream_(stream), num_layers_(num_layers) {}
    void layer_written(const StepInput& step, int32_t layer) override;
    Step* step = nullptr;  // null: nobody wants to know

   private:
    const cudaStream_t stream_;
    const int32_t num_layers_;
  };

  void begin(Step& step);
  void copy_pages(const StepInput& input);
  void tell_layers(Step& step);
  void begin_sampling(Step& step);
  void read_logits(Step& step);
  bool samples_on_gpu(const Step& step);
  void copy_results(const Step& step);
  void finish(Step& step);
  void finish_newest();
  void tell_time(Step& step);
  CudaEvent& computed(uint64_t number) { return computed_[number % computed_.size()]; }
  int32_t index_of(const Step& step) const { return static_cast<int32_t>(&step - steps_.data()); }

  CudaEngineParts parts_;
  const cudaStream_t stream_;
  LayerEvents layer_events_;
  CudaForward forward_;
  ChoiceTable choices_;
  StepBatch batch_;
  RowReader reader_;
  std::vector<SampleParams> params_;
  StepEdits edits_;
  CountTables count_tables_;
  PinnedBuffer results_;      // SampleResult [kStepsInFlight, rows_max]
  PinnedBuffer tops_;         // SampleResult [kStepsInFlight, rows_max, kTopTokensMax]
  PinnedBuffer host_logits_;  // float32 [kHostRows, vocab]
  std::array<Step, kStepsInFlight> steps_;
  uint64_t submitted_ = 0, collected_ = 0;  // steps_[n % kStepsInFlight]
  TokensInFlight tokens_in_flight_;         // of the newest step
  std::string broken_;                      // a CUDA error is for good
  SystemClock clock_;
  // Recorded behind what a step computes; still that of the step before the one being finished.
  std::array<CudaEvent, kStepsInFlight + 1> computed_{CudaEvent(true), CudaEvent(true),
                                                      CudaEvent(true)};
  uint64_t computed_number_ = 0;  // of the last step finished that computed something
  double computed_at_us_ = 0;     // when it ended
  StepWatcher watcher_;           // ends first: it waits for steps_
};

}  // namespace baton
