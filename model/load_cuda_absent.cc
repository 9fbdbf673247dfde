// load_model for GPUs in a build without CUDA.
#include "base/status.h"
#include "model/model_source.h"

namespace baton {

LoadedModel load_cuda_model(const std::string&, const EngineOptions& options, LayerSink*,
                            const std::function<void(double)>&) {
  throw ConfigError("device: got \"" + options.device + "\", this build has cpu only");
}

}  // namespace baton
