// The engine on CPU: page copies, one forward pass over the step's chunks, sampling; a step is
// computed when it is collected. Made by load_model. All calls from one thread, the engine thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "kernels/backend.h"
#include "model/engine.h"
#include "model/forward.h"
#include "model/row_reader.h"
#include "model/step_batch.h"
#include "model/weights.h"

namespace baton {

// What an engine is built from; it becomes the owner of all but the pools and the sink.
struct EngineParts {
  ModelConfig config;
  KvLayout layout;
  Weights weights;
  std::unique_ptr<BackendOf<float>> backend;
  std::vector<const PagePool*> pools;  // [kv_groups], borrowed
  LayerSink* sink = nullptr;           // borrowed, may be null
  int32_t step_tokens_max = 0;
  int32_t context_len = 0;
};

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(EngineParts parts);

  int32_t steps_in_flight_max() const override { return 1; }
  void submit(StepInput input) override;
  StepOutput collect() override;

 private:
  void copy_pages(const StepInput& input);
  void read_logits(StepOutput* output);

  // In this order: the forward pass points into the weights, the weights were made by the backend.
  EngineParts parts_;
  Forward<float> forward_;
  ChoiceTable choices_;
  StepBatch batch_;
  BatchView view_;
  RowReader reader_;
  std::optional<StepInput> submitted_;
  SystemClock clock_;
};

}  // namespace baton
