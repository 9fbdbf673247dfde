// load_model for the CPU.
#include <algorithm>
#include <thread>
#include <utility>

#include "base/status.h"
#include "model/engine_cpu.h"
#include "model/kv_plan.h"
#include "model/model_source.h"

namespace baton {

LoadedModel load_cpu_model(const std::string& path, const EngineOptions& options, LayerSink* sink,
                           const std::function<void(double)>& progress) {
  if (options.dummy_weights) throw ConfigError("load_format dummy: for device cuda only");
  ModelSource source = open_model(path);
  const int32_t threads =
      options.threads > 0 ? options.threads
                          : std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  std::unique_ptr<BackendOf<float>> backend = make_cpu_backend(threads, options.isa.c_str());
  const int32_t context_len = context_len_of(source.config, options);
  Weights weights =
      load_weights(source.config, std::move(source.store), source.names, *backend, progress);

  LoadedModel model;
  model.layout = plan_kv_layout(source.config, options.page_tokens,
                                parse_kv_dtype(options.kv_dtype, weights.quantised));
  const int64_t kv_bytes =
      options.kv_bytes > 0 ? options.kv_bytes : kv_bytes_for(model.layout, context_len);
  const std::vector<int32_t> num_pages = plan_pages(model.layout, kv_bytes);
  std::vector<const PagePool*> pools;
  for (size_t g = 0; g < model.layout.groups.size(); ++g) {
    model.pools.push_back(
        std::make_unique<PagePool>(model.layout.groups[g], num_pages[g], options.slab_bytes));
    pools.push_back(model.pools.back().get());
  }
  model.facts =
      make_facts(source.config, weights.store, model.layout, context_len, "cpu", backend->isa());
  model.engine = std::make_unique<CpuEngine>(EngineParts{.config = std::move(source.config),
                                                         .layout = model.layout,
                                                         .weights = std::move(weights),
                                                         .backend = std::move(backend),
                                                         .pools = std::move(pools),
                                                         .sink = sink,
                                                         .step_tokens_max = options.step_tokens_max,
                                                         .context_len = context_len});
  return model;
}

}  // namespace baton
