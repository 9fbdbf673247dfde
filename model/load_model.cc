// From a path to a model that computes: config, weights, pages, engine.
#include "model/engine.h"
#include "model/model_source.h"

namespace baton {

LoadedModel load_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                       const std::function<void(double)>& progress) {
  return options.device == "cpu" ? load_cpu_model(path, options, sink, progress)
                                 : load_cuda_model(path, options, sink, progress);
}

}  // namespace baton
