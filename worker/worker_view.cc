#include "worker/worker_view.h"

#include <nlohmann/json.hpp>

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
