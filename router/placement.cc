#include "router/placement.h"

#include <algorithm>

namespace baton {
namespace {

constexpr size_t kHistoryBlocksMax = 1 << 18;  // 4 Mi tokens of prefixes, some 25 MB
// Costs are in prompt tokens. One more running choice slows all others of a step about as much as
// so many prompt tokens.
constexpr double kTokensPerChoice = 32.0;
constexpr double kFullPoolTokens = 4096.0;      // the cost of a worker without a free page
constexpr double kAssumedPrefillRate = 1000.0;  // tokens/s, until a worker has told its own

double used_share(const WorkerStatus& status) {
  double share = 0;
  for (const PageCounts& pages : status.pages) {
    if (pages.total <= 0) continue;
    const double taken = static_cast<double>(pages.total - pages.free - pages.cached);
    share = std::max(share, taken / static_cast<double>(pages.total));
  }
  return share;
}

int32_t uncached(const PlacementQuery& query, int32_t seen_tokens) {
  return static_cast<int32_t>(query.tokens.size()) - seen_tokens;
}

}  // namespace

Placement::Placement(const RouteConfig& config, uint64_t hash_key)
    : config_(config), history_(hash_key, kHistoryBlocksMax) {}

void Placement::add(LinkId link, const PeerInfo& peer) {
  Worker& worker = workers_[link];
  worker.link = link;
  worker.peer = peer;
  // A worker that reconnects is the same process with the same cache, until its epoch says
  // otherwise.
  std::erase_if(numbers_, [&](const auto& entry) {
    return entry.first.first == peer.worker_id && entry.first.second != peer.epoch;
  });
  auto [it, inserted] = numbers_.try_emplace({peer.worker_id, peer.epoch}, next_number_);
  if (inserted) ++next_number_;
  worker.number = it->second;
}

void Placement::remove(LinkId link) {
  workers_.erase(link);
}

void Placement::update(LinkId link, const WorkerStatus& status) {
  const auto it = workers_.find(link);
  if (it == workers_.end()) return;
  it->second.status = status;
  it->second.draining = status.draining;
}

void Placement::set_draining(LinkId link) {
  const auto it = workers_.find(link);
  if (it != workers_.end()) it->second.draining = true;
}

void Placement::add_load(LinkId link, int64_t prefill_tokens, int32_t choices) {
  const auto it = workers_.find(link);
  if (it == workers_.end()) return;
  it->second.prefill_tokens += prefill_tokens;
  it->second.choices += choices;
}

void Placement::remember(const std::vector<uint64_t>& chain, LinkId link) {
  const Worker* worker = find(link);
  if (worker != nullptr) history_.remember(chain, worker->number);
}

const Worker* Placement::find(LinkId link) const {
  const auto it = workers_.find(link);
  return it == workers_.end() ? nullptr : &it->second;
}

bool Placement::ready() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.decodes() && !entry.second.draining;
  });
}

int64_t Placement::largest_total() const {
  int64_t largest = 0;
  for (const auto& [link, worker] : workers_) {
    if (!worker.decodes()) continue;
    if (worker.status.largest_prompt <= 0) return 0;
    largest = std::max(largest, worker.status.largest_prompt);
  }
  return largest;
}

Status Placement::fits(int64_t prompt_tokens, int64_t total_tokens) const {
  const int64_t total_max = largest_total();
  if (total_max > 0 && total_tokens > total_max) {
    return invalid_argument("max_tokens: got " + std::to_string(total_tokens) +
                            " tokens together with the prompt's " + std::to_string(prompt_tokens) +
                            ", want at most " + std::to_string(total_max) +
                            ", the largest request of any decode worker");
  }
  return {};
}

bool Placement::usable(const Worker& worker, std::string_view kv_compat_id) {
  return !worker.draining && (kv_compat_id.empty() || worker.peer.kv_compat_id == kv_compat_id);
}

bool Placement::any_usable(std::string_view kv_compat_id, bool prefill_only) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    const bool fits = worker.decodes() || (prefill_only && worker.prefills());
    return fits && usable(worker, kv_compat_id);
  });
}

double Placement::prefill_cost(const Worker& worker, const PlacementQuery& query) const {
  const double rate = worker.status.prefill_tokens_per_s > 0 ? worker.status.prefill_tokens_per_s
                                                             : kAssumedPrefillRate;
  const int64_t queued = std::max(worker.status.queued_tokens, worker.prefill_tokens);
  const double decodes = kTokensPerChoice * std::max(worker.status.running, worker.choices);
  const int32_t own = uncached(query, history_.seen_tokens(query.chain, worker.number));
  return (static_cast<double>(queued) + own + decodes) / rate;
}

double Placement::decode_cost(const Worker& worker, const PlacementQuery& query) const {
  const int32_t choices = std::max(worker.status.running + worker.status.waiting, worker.choices);
  return uncached(query, history_.seen_tokens(query.chain, worker.number)) +
         kTokensPerChoice * choices + kFullPoolTokens * used_share(worker.status);
}

const Worker* Placement::best_prefill(const PlacementQuery& query) const {
  const Worker* best = nullptr;
  double best_cost = 0;
  bool dedicated = false;
  for (const auto& [link, worker] : workers_) {
    if (!worker.prefills() || !usable(worker, query.kv_compat_id)) continue;
    dedicated = dedicated || worker.peer.role == Role::kPrefill;
    const double cost = prefill_cost(worker, query);
    if (best == nullptr || cost < best_cost) {
      best = &worker;
      best_cost = cost;
    }
  }
  // Where every worker does both, moving pages between them gains nothing: each prefills what it
  // decodes.
  return dedicated || query.prefill_only ? best : nullptr;
}

std::vector<const Worker*> Placement::decode_by_cost(const PlacementQuery& query) const {
  std::vector<std::pair<double, const Worker*>> costs;
  for (const auto& [link, worker] : workers_) {
    if (worker.decodes() && usable(worker, query.kv_compat_id)) {
      costs.emplace_back(decode_cost(worker, query), &worker);
    }
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Worker*> sorted;
  for (const auto& [cost, worker] : costs) sorted.push_back(worker);
  return sorted;
}

std::optional<Plan> Placement::choose(const PlacementQuery& query) const {
  const std::vector<const Worker*> decode = decode_by_cost(query);
  const Worker* prefill = best_prefill(query);
  if (query.prefill_only && prefill != nullptr) {
    return Plan{.prefill = prefill->link, .kv_compat_id = prefill->peer.kv_compat_id};
  }
  if (decode.empty()) return std::nullopt;

  const Worker& first = *decode.front();
  const int32_t uncached_tokens = uncached(query, history_.seen_tokens(query.chain, first.number));
  Plan plan;
  if (prefill != nullptr && prefill != &first && uncached_tokens > config_.local_prompt_tokens) {
    // Pages fit only a pool of the same layout, so the prefill worker's mates are the candidates.
    for (const Worker* worker : decode) {
      if (plan.decode.size() == static_cast<size_t>(config_.candidates)) break;
      const bool mate = worker->peer.kv_compat_id == prefill->peer.kv_compat_id;
      if (mate && worker != prefill) plan.decode.push_back(worker->link);
    }
  }
  if (!plan.decode.empty()) {
    plan.prefill = prefill->link;
    plan.kv_compat_id = prefill->peer.kv_compat_id;
  } else {
    plan.decode.push_back(first.link);
    plan.kv_compat_id = first.peer.kv_compat_id;
  }
  return plan;
}

}  // namespace baton
