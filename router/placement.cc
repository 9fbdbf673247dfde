#include "router/placement.h"

#include <algorithm>

namespace baton {
namespace {

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

// Cheapest first; the one to be avoided last.
std::vector<const Worker*> sorted(std::vector<std::pair<double, const Worker*>> costs,
                                  LinkId avoid) {
  std::stable_sort(costs.begin(), costs.end(), [&](const auto& a, const auto& b) {
    const bool avoid_a = a.second->link == avoid, avoid_b = b.second->link == avoid;
    return avoid_a != avoid_b ? avoid_b : a.first < b.first;
  });
  std::vector<const Worker*> workers;
  for (const auto& [cost, worker] : costs) workers.push_back(worker);
  return workers;
}

}  // namespace

Placement::Placement(const RouteConfig& config, uint64_t hash_key)
    : config_(config),
      zone_policy_(parse_zone_policy(config.zone_policy)),
      history_(hash_key, static_cast<size_t>(config.history_blocks_max)) {}

void Placement::add(LinkId link, const PeerInfo& peer, const std::string& address) {
  Worker& worker = workers_[link];
  worker.link = link;
  worker.peer = peer;
  worker.address = address;
  apply_hint(worker);
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
  const auto it = workers_.find(link);
  if (it == workers_.end()) return;
  // A withheld address is not dialled again; when it comes back there is a new hint.
  if (!it->second.withheld.empty()) hints_.erase(it->second.address);
  workers_.erase(it);
}

void Placement::set_hint(const std::string& address, const AddressHint& hint) {
  hints_[address] = hint;
  for (auto& [link, worker] : workers_) {
    if (worker.address == address) apply_hint(worker);
  }
}

void Placement::apply_hint(Worker& worker) const {
  const auto hint = hints_.find(worker.address);
  if (worker.address.empty() || hint == hints_.end()) return;
  worker.withheld = hint->second.withheld;
  if (worker.peer.zone.empty()) worker.peer.zone = hint->second.zone;
}

void Placement::update(LinkId link, const WorkerStatus& status, int64_t now_us) {
  const auto it = workers_.find(link);
  if (it == workers_.end()) return;
  Worker& worker = it->second;
  if (status.waiting > 0 && status.steps_done != worker.status.steps_done) worker.moved_us = now_us;
  worker.status = status;
  worker.draining = status.draining;
  worker.silent = false;
  worker.placed_tokens = 0;
  worker.heard_us = now_us;
}

void Placement::mark_silent(int64_t heard_before_us) {
  for (auto& [link, worker] : workers_) {
    worker.silent = worker.heard_us != 0 && worker.heard_us < heard_before_us;
  }
}

void Placement::set_draining(LinkId link) {
  const auto it = workers_.find(link);
  if (it != workers_.end()) it->second.draining = true;
}

void Placement::note_refusal(LinkId link, const std::string& reason, int64_t now_us) {
  const auto it = workers_.find(link);
  if (it == workers_.end()) return;
  ++it->second.refusals;
  it->second.refusal = reason;
  it->second.refused_us = now_us;
}

void Placement::add_load(LinkId link, int64_t prefill_tokens, int32_t choices, int32_t priority) {
  const auto it = workers_.find(link);
  if (it == workers_.end()) return;
  Worker& worker = it->second;
  worker.choices += choices;
  if (prefill_tokens == 0) return;
  worker.prefill_tokens += prefill_tokens;
  worker.placed_tokens += std::max<int64_t>(prefill_tokens, 0);
  int64_t& same = worker.prompts[priority];
  same += prefill_tokens;
  if (same == 0) worker.prompts.erase(priority);
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
    return entry.second.decodes() && usable(entry.second, "");
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

std::string Placement::unusable_reason(const Worker& worker) {
  if (worker.draining) return "draining";
  if (!worker.withheld.empty()) return worker.withheld;
  return worker.silent ? "silent" : "";
}

bool Placement::usable(const Worker& worker, std::string_view kv_compat_id) {
  return !worker.draining && !worker.silent && worker.withheld.empty() &&
         (kv_compat_id.empty() || worker.peer.kv_compat_id == kv_compat_id);
}

bool Placement::mates(const Worker& prefill, const Worker& decode) const {
  return prefill.link != decode.link && decode.peer.kv_compat_id == prefill.peer.kv_compat_id &&
         may_pair(prefill.peer, decode.peer, zone_policy_);
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
  const double decodes = kTokensPerChoice * std::max(worker.status.running, worker.choices);
  const int32_t own = uncached(query, history_.seen_tokens(query.chain, worker.number));
  // Its pages have to go somewhere, unless the prompt ends here.
  const double far = query.prefill_only ? 0 : nearest_mate_tokens(worker);
  return (static_cast<double>(worker.queued_tokens()) + own + decodes + far) / rate;
}

double Placement::decode_cost(const Worker& worker, const PlacementQuery& query) const {
  const int32_t choices = std::max(worker.status.running + worker.status.waiting, worker.choices);
  return uncached(query, history_.seen_tokens(query.chain, worker.number)) +
         kTokensPerChoice * choices + kFullPoolTokens * used_share(worker.status);
}

std::vector<const Worker*> Placement::prefill_by_cost(const PlacementQuery& query) const {
  std::vector<std::pair<double, const Worker*>> costs;
  for (const auto& [link, worker] : workers_) {
    if (worker.prefills() && usable(worker, query.kv_compat_id)) {
      costs.emplace_back(prefill_cost(worker, query), &worker);
    }
  }
  return sorted(std::move(costs), query.avoid);
}

std::vector<const Worker*> Placement::decode_by_cost(const PlacementQuery& query) const {
  std::vector<std::pair<double, const Worker*>> costs;
  for (const auto& [link, worker] : workers_) {
    if (worker.decodes() && usable(worker, query.kv_compat_id)) {
      costs.emplace_back(decode_cost(worker, query), &worker);
    }
  }
  return sorted(std::move(costs), query.avoid);
}

bool Placement::has_dedicated_prefill(std::string_view kv_compat_id) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.peer.role == Role::kPrefill && usable(entry.second, kv_compat_id);
  });
}

double Placement::nearest_mate_tokens(const Worker& prefill) const {
  std::optional<double> nearest;
  for (const auto& [link, worker] : workers_) {
    if (!worker.decodes() || !usable(worker, "") || !mates(prefill, worker)) continue;
    const double tokens = distance_tokens(prefill.peer, worker.peer, zone_policy_);
    nearest = std::min(nearest.value_or(tokens), tokens);
    if (*nearest == 0) break;  // mostly the first one
  }
  return nearest.value_or(0);
}

std::vector<const Worker*> Placement::mates_by_cost(const Worker& prefill,
                                                    const PlacementQuery& query) const {
  std::vector<std::pair<double, const Worker*>> costs;
  for (const auto& [link, worker] : workers_) {
    if (!worker.decodes() || !usable(worker, query.kv_compat_id) || !mates(prefill, worker))
      continue;
    const double far = distance_tokens(prefill.peer, worker.peer, zone_policy_);
    costs.emplace_back(decode_cost(worker, query) + far, &worker);
  }
  return sorted(std::move(costs), query.avoid);
}

// The cheapest prefill worker that has mates: pages fit only a pool of the same layout. Nothing
// where the prompt is better computed by `first`, the cheapest decode worker, itself.
std::optional<Plan> Placement::remote_plan(const PlacementQuery& query, const Worker& first) const {
  for (const Worker* prefill : prefill_by_cost(query)) {
    const std::string& kv_compat_id = prefill->peer.kv_compat_id;
    if (prefill == &first || prefill->link == query.avoid) return std::nullopt;
    // Where every worker does both, moving pages between them gains nothing: each prefills what it
    // decodes.
    if (!has_dedicated_prefill(kv_compat_id)) continue;
    Plan plan{.prefill = prefill->link, .kv_compat_id = kv_compat_id};
    for (const Worker* mate : mates_by_cost(*prefill, query)) {
      if (plan.decode.size() == static_cast<size_t>(config_.candidates)) break;
      plan.decode.push_back(mate->link);
    }
    if (!plan.decode.empty()) return plan;
  }
  return std::nullopt;
}

std::optional<Plan> Placement::choose(const PlacementQuery& query) const {
  if (query.prefill_only) {
    const std::vector<const Worker*> prefill = prefill_by_cost(query);
    if (!prefill.empty()) {
      return Plan{.prefill = prefill.front()->link,
                  .kv_compat_id = prefill.front()->peer.kv_compat_id};
    }
  }
  const std::vector<const Worker*> decode = decode_by_cost(query);
  if (decode.empty()) return std::nullopt;
  const Worker& first = *decode.front();
  if (uncached(query, history_.seen_tokens(query.chain, first.number)) >
      config_.local_prompt_tokens) {
    if (std::optional<Plan> plan = remote_plan(query, first)) return plan;
  }
  return Plan{.decode = {first.link}, .kv_compat_id = first.peer.kv_compat_id};
}

}  // namespace baton
