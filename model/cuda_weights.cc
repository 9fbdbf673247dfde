#include "model/cuda_weights.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kGiB = 1 << 30;
constexpr double kLogPeriodSeconds = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Weights load_cuda_weights(ModelSource& source, CudaBackend& backend,
                          const std::function<void(double)>& progress) {
  const Clock::time_point start = Clock::now();
  const auto bytes = static_cast<double>(weight_bytes(source.store));
  Weights weights = load_weights(source.config, std::move(source.store), source.names, backend, {});
  double told_seconds = 0;
  backend.finish_loading([&](double fraction) {
    if (progress) progress(fraction);
    const double seconds = seconds_since(start);
    if (seconds - told_seconds < kLogPeriodSeconds) return;
    told_seconds = seconds;
    log_info("weights_loading", {{"percent", static_cast<int>(fraction * 100)},
                                 {"gb_per_s", fraction * bytes / 1e9 / seconds}});
  });
  const double seconds = seconds_since(start);
  log_info("weights_loaded", {{"gib", bytes / kGiB},
                              {"dtype", "f16, bf16"},
                              {"dequantised", weights.quantised},
                              {"seconds", seconds},
                              {"gb_per_s", bytes / 1e9 / seconds}});
  return weights;
}

}  // namespace baton
