// What /debug shows of the landing side.
#include "decode/landing_side.h"

namespace baton {

std::vector<HandoffView> LandingSide::attempt_views() const {
  std::vector<HandoffView> views;
  for (const auto& [id, attempt] : attempts_) {
    HandoffView& view = views.emplace_back();
    view.id = id;
    view.state = stage(id);
    view.slot_gen = attempt.slot_gen;
    view.tokens = std::ssize(attempt.open.tokens);
    view.age_us = clock_.now_us() - attempt.since_us;
  }
  return views;
}

const char* LandingSide::name_of(GrantState state) {
  switch (state) {
    case GrantState::kGranted:
      return "granted";
    case GrantState::kVerifying:
      return "verifying";
    case GrantState::kQuarantined:
      return "quarantined";
  }
  return "";
}

std::vector<HandoffView> LandingSide::grant_views() const {
  std::vector<HandoffView> views;
  for (const auto& [slot_gen, grant] : grants_) {
    HandoffView& view = views.emplace_back();
    view.id = grant.id;
    view.state = name_of(grant.state);
    view.peer = worker_of(grant.link);
    view.slot_gen = slot_gen;
    for (const auto& group : grant.granted) view.pages += std::ssize(group);
    view.age_us = clock_.now_us() - grant.since_us;
  }
  return views;
}

}  // namespace baton
