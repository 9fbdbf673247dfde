// baton-worker with this load_model in place of the product's is failing-worker: its engine
// computes as the real one does until it has been given kGoodSteps steps with work, and then fails,
// on a GPU as after any bad access, on a CPU as CudaEngine reports it.
#include <stdexcept>
#include <utility>

#include "model/model_source.h"
#include "tests/e2e/bad_access.h"

namespace baton {
namespace {

constexpr int kGoodSteps = 12;

class FailingEngine final : public Engine {
 public:
  FailingEngine(std::unique_ptr<Engine> engine, int cuda_device)
      : engine_(std::move(engine)), cuda_device_(cuda_device) {}

  int32_t steps_in_flight_max() const override { return engine_->steps_in_flight_max(); }
  void submit(StepInput input) override {
    if (input.num_tokens() > 0 && ++steps_ == kGoodSteps) {
      if (cuda_device_ < 0)
        throw std::runtime_error("attention: an illegal memory access was encountered");
      access_badly(cuda_device_);
    }
    engine_->submit(std::move(input));
  }
  StepOutput collect() override { return engine_->collect(); }
  void on_step_done(std::function<void()> notify) override {
    engine_->on_step_done(std::move(notify));
  }

 private:
  const std::unique_ptr<Engine> engine_;
  const int cuda_device_;
  int steps_ = 0;
};

}  // namespace

LoadedModel load_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                       const std::function<void(double)>& progress) {
  LoadedModel model = options.device == "cpu" ? load_cpu_model(path, options, sink, progress)
                                              : load_cuda_model(path, options, sink, progress);
  model.engine = std::make_unique<FailingEngine>(std::move(model.engine), model.cuda_device);
  return model;
}

}  // namespace baton
