// When a first token will come, as far as the workers' STATUS and our own placing tell.
#include <algorithm>

#include "router/placement.h"

namespace baton {
namespace {

// Tokens/s at which the worker's queue goes down; what it computes at best until that is known.
double queue_rate(const Worker& worker) {
  const WorkerStatus& status = worker.status;
  return status.queue_tokens_per_s > 0 ? status.queue_tokens_per_s : status.prefill_tokens_per_s;
}

// What is queued before a new request of this priority. Of other routers' requests the priorities
// are not known: all of them count.
int64_t tokens_ahead(const Worker& worker, int32_t priority) {
  int64_t later = 0;
  for (auto it = worker.prompts.upper_bound(priority); it != worker.prompts.end(); ++it) {
    later += it->second;
  }
  return std::max<int64_t>(0, worker.queued_tokens() - later);
}

}  // namespace

std::optional<TtftForecast> Placement::forecast(const Plan& plan,
                                                const PlacementQuery& query) const {
  const Worker& worker = workers_.at(plan.computes());
  const double rate = queue_rate(worker);
  if (rate <= 0) return std::nullopt;
  const double own_rate = std::max(rate, worker.status.prefill_tokens_per_s);
  const auto seen = history_.seen_tokens(query.chain, worker.number);
  const auto own = static_cast<double>(std::ssize(query.tokens) - seen);
  return TtftForecast{
      .wait_s = static_cast<double>(tokens_ahead(worker, query.priority)) / rate,
      .own_s = worker.status.step_ms * 1e-3 + own / own_rate,
  };
}

std::optional<double> Placement::queue_wait_s() const {
  const bool dedicated = has_dedicated_prefill("");
  std::optional<double> shortest;
  for (const auto& [link, worker] : workers_) {
    const double rate = queue_rate(worker);
    if (rate <= 0 || !usable(worker, "") || (dedicated && !worker.prefills())) continue;
    const double wait_s = static_cast<double>(worker.queued_tokens()) / rate;
    if (!shortest || wait_s < *shortest) shortest = wait_s;
  }
  return shortest;
}

std::optional<double> Placement::fleet_time_s(int64_t tokens) const {
  double rate = 0;
  for (const auto& [link, worker] : workers_) {
    if (usable(worker, "") && worker.prefills()) rate += queue_rate(worker);
  }
  if (rate <= 0) return std::nullopt;
  return static_cast<double>(tokens) / rate;
}

}  // namespace baton
