// The shapes of simulated trouble, by name.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace baton::sim {

struct Scenario {
  std::string name;
  ClusterOptions options;
};

inline std::vector<Scenario> scenarios() {
  return {
      {"calm", {.cancel_rate = 0}},
      {"one_of_each", {.prefills = 1, .decodes = 1}},
      {"cancels", {.cancel_rate = 1.0}},
      {"small_pools", {.pages = 16}},
      {"sliding_window", {.window = 40}},
      {"stores_ourselves", {.tcp_like = true, .cuts = 4}},
      {"cuts", {.cuts = 6}},
      {"stalls", {.cuts = 2, .stalls = 4}},
      {"slow_copies", {.pages = 20, .cancel_rate = 3, .copy_rate = 0.05, .cuts = 3, .stalls = 4}},
      {"kills", {.kills = 4}},
      {"two_routers", {.routers = 2, .kills = 1, .cuts = 2}},
      {"router_dies", {.routers = 2, .router_kills = 2}},
      {"everything",
       {.routers = 2, .pages = 24, .kills = 3, .cuts = 4, .stalls = 2, .router_kills = 1}},
      {"no_prefill_worker", {.prefills = 0, .kills = 1}},
  };
}

}  // namespace baton::sim
