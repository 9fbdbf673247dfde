#include "router/placement_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "router/json_text.h"

namespace baton {
namespace {

// Null for what has not happened.
Json age_seconds(int64_t since_us, int64_t now_us) {
  if (since_us == 0) return nullptr;
  return static_cast<double>(now_us - since_us) * 1e-6;
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json pages_json(const std::vector<PageCounts>& groups) {
  Json rows = Json::array();
  for (const PageCounts& pages : groups) {
    rows.push_back({{"free", pages.free},
                    {"cached", pages.cached},
                    {"used", pages.used},
                    {"granted", pages.granted},
                    {"quarantined", pages.quarantined},
                    {"total", pages.total}});
  }
  return rows;
}

int64_t count_mates(const Placement& placement, const Worker& worker) {
  const auto& workers = placement.workers();
  return std::count_if(workers.begin(), workers.end(), [&](const auto& entry) {
    const Worker& other = entry.second;
    const bool pair = (worker.prefills() && other.decodes() && placement.mates(worker, other)) ||
                      (worker.decodes() && other.prefills() && placement.mates(other, worker));
    return pair && Placement::unusable_reason(other).empty();
  });
}

// A prefill worker alone serves prompts that end with their first token only; a decode worker alone
// computes its prompts itself.
std::string reason_of(const Worker& worker, int64_t mates) {
  std::string reason = Placement::unusable_reason(worker);
  if (reason.empty() && worker.peer.role == Role::kPrefill && mates == 0)
    reason = "no decode worker in reach has its kv_compat_id";
  return reason;
}

Json worker_json(const Placement& placement, const Worker& worker, int64_t now_us) {
  const WorkerStatus& status = worker.status;
  const int64_t mates = count_mates(placement, worker);
  const std::string reason = reason_of(worker, mates);
  return {{"worker", worker.peer.worker_id},
          {"address", or_null(worker.address)},
          {"role", role_name(worker.peer.role)},
          {"model", worker.peer.model_name},
          {"kv_compat_id", worker.peer.kv_compat_id},
          {"clique", or_null(worker.peer.clique)},
          {"zone", or_null(worker.peer.zone)},
          {"used", reason.empty()},
          {"reason", or_null(reason)},
          {"mates", mates},
          {"queue",
           {{"running", status.running},
            {"waiting", status.waiting},
            {"prompt_tokens", worker.queued_tokens()},
            {"choices_placed_here", worker.choices},
            {"prefill_tokens_per_second", status.prefill_tokens_per_s},
            {"status_age_seconds", age_seconds(worker.heard_us, now_us)}}},
          {"pages", pages_json(status.pages)},
          {"refusals",
           {{"count", worker.refusals},
            {"last", or_null(worker.refusal)},
            {"last_age_seconds", age_seconds(worker.refused_us, now_us)}}}};
}

Json entry_json(const Placement& placement, const WorkerList::Entry& entry) {
  const auto is_up = [&placement](const std::string& address) {
    const auto& workers = placement.workers();
    return std::any_of(workers.begin(), workers.end(),
                       [&](const auto& worker) { return worker.second.address == address; });
  };
  Json addresses = Json::array();
  for (const auto& [address, hint] : entry.addresses) {
    addresses.push_back({{"address", address},
                         {"connected", is_up(address)},
                         {"withheld", or_null(hint.withheld)},
                         {"zone", or_null(hint.zone)}});
  }
  return {{"entry", entry.text}, {"trouble", or_null(entry.trouble)}, {"addresses", addresses}};
}

}  // namespace

std::string placement_json(const Placement& placement,
                           const std::vector<WorkerList::Entry>& discovery, int64_t now_us) {
  Json workers = Json::array();
  for (const auto& [link, worker] : placement.workers())
    workers.push_back(worker_json(placement, worker, now_us));
  Json entries = Json::array();
  for (const WorkerList::Entry& entry : discovery) entries.push_back(entry_json(placement, entry));
  // Names come from peers: whatever is in them, this is JSON.
  const Json answer = {{"workers", workers}, {"discovery", entries}};
  return answer.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace baton
