#include "model/count_places.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

CountPlaces::Use CountPlaces::use(int32_t slot, int32_t known, int32_t position) {
  const auto found = by_slot_.find(slot);
  const bool has_table = found != by_slot_.end();
  const int32_t table = has_table ? found->second : take(slot);
  Place& place = places_[static_cast<size_t>(table)];
  const auto reaches = [&] { return place.held == position || place.held == position - 1; };
  const bool build = !has_table || !reaches();
  if (build) place.held = known;
  CHECK(reaches()) << "slot " << slot << ": " << place.held << " tokens before position "
                   << position;
  const bool add_last = place.held == position - 1;
  place.held = position;
  place.step = step_;
  return {.table = table, .build = build, .add_last = add_last};
}

void CountPlaces::close(int32_t slot) {
  const auto found = by_slot_.find(slot);
  if (found == by_slot_.end()) return;
  places_[static_cast<size_t>(found->second)] = {};
  by_slot_.erase(found);
}

// A free one, else the one that was used longest ago.
int32_t CountPlaces::take(int32_t slot) {
  const auto place =
      std::min_element(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
        return (a.slot >= 0) != (b.slot >= 0) ? a.slot < 0 : a.step < b.step;
      });
  CHECK(place->slot < 0 || place->step < step_)
      << "tables of counts: more than " << places_.size() << " in a step";
  if (place->slot >= 0) by_slot_.erase(place->slot);
  *place = {.slot = slot};
  const auto table = static_cast<int32_t>(place - places_.begin());
  by_slot_[slot] = table;
  return table;
}

}  // namespace baton
