#include "worker/worker_view.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/build_info.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

double seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

Json to_json(const std::vector<HandoffView>& views) {
  Json rows = Json::array();
  for (const HandoffView& view : views) {
    rows.push_back({{"id", to_string(view.id)},
                    {"state", view.state},
                    {"peer", view.peer},
                    {"slot_gen", view.slot_gen},
                    {"tokens", view.tokens},
                    {"pages", view.pages},
                    {"age_seconds", seconds(view.age_us)}});
  }
  return rows;
}

std::string text(const Json& json) {
  // Names come from peers: whatever is in them, this is JSON.
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string info_json(const WorkerInfo& info) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json groups = Json::array();
  int64_t tokens = INT64_MAX;  // a sequence takes pages of every group
  for (const WorkerInfo::Group& group : info.groups) {
    const int64_t held = int64_t{group.pages} * group.page_tokens;
    groups.push_back(
        {{"pages", group.pages}, {"page_tokens", group.page_tokens}, {"tokens", held}});
    tokens = std::min(tokens, held);
  }
  const BuildInfo build = build_info();
  return text({{"worker_id", info.peer.worker_id},
               {"role", role_name(info.peer.role)},
               {"model", info.peer.model_name},
               {"kv_compat_id", info.peer.kv_compat_id},
               {"numerics_id", info.numerics_id},
               {"device", info.device},
               {"clique", or_null(info.peer.clique)},
               {"zone", or_null(info.peer.zone)},
               {"capacity",
                {{"tokens", groups.empty() ? 0 : tokens},
                 {"context_len", info.peer.context_len},
                 {"kv_groups", groups},
                 {"weight_bytes", info.weight_bytes}}},
               {"version", build.version},
               {"commit", build.commit}});
}

std::string pages_json(const WorkerView& view) {
  Json groups = Json::array();
  for (const PageCounts& counts : view.pages) {
    groups.push_back({{"free", counts.free},
                      {"cached", counts.cached},
                      {"used", counts.used},
                      {"granted", counts.granted},
                      {"quarantined", counts.quarantined},
                      {"total", counts.total}});
  }
  return text({{"kv_groups", groups},
               {"oldest_age_seconds",
                {{"granted", seconds(view.ages.granted_us)},
                 {"quarantined", seconds(view.ages.quarantined_us)}}},
               {"grants", to_json(view.grants)}});
}

std::string handoffs_json(const WorkerView& view) {
  return text({{"handoffs", to_json(view.handoffs)},
               {"grants", to_json(view.grants)},
               {"attempts", to_json(view.attempts)}});
}

}  // namespace baton
