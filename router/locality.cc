#include "router/locality.h"

namespace baton {
namespace {

// Half of what an empty pool is worth over a full one, and twice that: load moves a request out of
// its clique before a pool overflows, and out of its zone only then.
constexpr double kOtherCliqueTokens = 2048.0;
constexpr double kOtherZoneTokens = 8192.0;

bool same_zone(const PeerInfo& a, const PeerInfo& b) {
  return a.zone.empty() || b.zone.empty() || a.zone == b.zone;
}

}  // namespace

ZonePolicy parse_zone_policy(const std::string& text) {
  if (text == "require") return ZonePolicy::kRequire;
  return text == "ignore" ? ZonePolicy::kIgnore : ZonePolicy::kPrefer;
}

bool may_pair(const PeerInfo& a, const PeerInfo& b, ZonePolicy policy) {
  return policy != ZonePolicy::kRequire || same_zone(a, b);
}

double distance_tokens(const PeerInfo& a, const PeerInfo& b, ZonePolicy policy) {
  double tokens = a.clique == b.clique ? 0 : kOtherCliqueTokens;
  if (policy != ZonePolicy::kIgnore && !same_zone(a, b)) tokens += kOtherZoneTokens;
  return tokens;
}

}  // namespace baton
