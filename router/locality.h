// How far apart two workers are for a handoff of pages, and what that costs in placement. Called by
// placement.cc. Pure functions.
//
// Inside an NVLink clique pages move by NVLink; a handle of one clique's memory is worth nothing in
// another. Inside a zone they move over the fabric; between zones over whatever there is, which is
// often paid for by the byte. A worker that does not know its zone counts as being in any;
// one without a clique is in none.
#pragma once

#include <cstdint>
#include <string>

#include "base/messages.h"

namespace baton {

enum class ZonePolicy : uint8_t { kPrefer, kRequire, kIgnore };
ZonePolicy parse_zone_policy(const std::string& text);  // of the setting route.zone_policy

// Whether `a` may hand pages over to `b`, or take them.
bool may_pair(const PeerInfo& a, const PeerInfo& b, ZonePolicy policy);

// In prompt tokens, the unit of placement's costs: so much busier may a near worker be before a far
// one is better.
double distance_tokens(const PeerInfo& a, const PeerInfo& b, ZonePolicy policy);

}  // namespace baton
