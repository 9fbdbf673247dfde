// The shapes of simulated trouble, by name: first what docs/protocol.md tells, then
// mixtures of faults.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/cluster.h"

namespace baton::sim {

struct Scenario {
  std::string name;
  ClusterOptions options;
  std::vector<std::string> shows;  // of RunResult::seen: over a few seeds each comes up, or the
                                   // scenario is not about what its name says
};

inline std::vector<Scenario> walk_throughs() {
  const auto at = [](const std::string& message, Strike strike) {
    return ClusterOptions{.load = {.concurrent_max = 4},
                          .cancel_rate = 0,
                          .copy_rate = 0.3,
                          .triggers = {{.message = message, .strike = strike}}};
  };
  const Workload talk{.concurrent_max = 2, .prompt_min = 60, .second_turn_share = 0.6};
  std::vector<Scenario> all = {
      {"normal", {.cancel_rate = 0}, {"COMMIT", "ACK", "LOCAL", "PREFILL, alone"}},
      {"second_turn_on_both",
       {.load = talk, .cancel_rate = 0},
       {"GRANT, cached", "RESERVE, cached"}},
      {"second_turn_on_decode",
       {.load = talk, .cancel_rate = 0, .kill_between_turns_prefill = true},
       {"GRANT, cached", "RESERVE"}},
      {"second_turn_on_prefill",
       {.load = talk, .cancel_rate = 0, .kill_between_turns_decode = true},
       {"RESERVE, cached", "GRANT"}},
      {"max_tokens_one", {.load = {.max_tokens = 1}}, {"PREFILL, alone"}},
      {"four_choices_some_end_at_once",
       {.load = {.n = 4, .eos_tokens = 25}, .cancel_rate = 0},
       {"COMMIT, some ended"}},
      {"eos_first", {.load = {.eos_tokens = 48}, .cancel_rate = 0}, {"DRAINED", "CLOSE"}},
      {"prefill_dies_after_first_token", at("EVENTS", Strike::kKillSender), {"EVENTS"}},
      {"prefill_dies_before_commit", at("COMMIT", Strike::kLose), {"DRAINED_ALL", "FAILED"}},
      {"decode_dies_after_commit", at("ACK", Strike::kKillSender), {"COMMIT", "ACK"}},
      {"decode_dies_at_commit", at("COMMIT", Strike::kKillReceiver), {"COMMIT"}},
      {"prefill_stopped_in_mid_copy",
       {.load = {.concurrent_max = 4},
        .cancel_rate = 0,
        .copy_rate = 0.1,
        .stops = 3,
        .triggers = {{.message = "PLACED", .strike = Strike::kStopSender}}},
       {"quarantined", "DRAINED_ALL"}},
      {"full_from_all",
       {.pages = 12, .load = {.prompt_min = 60}, .cancel_rate = 0},
       {"FULL", "REFUSED"}},
      {"large_among_small",
       {.pages = 44, .load = {.prompt_max = 40, .large_every = 8}, .cancel_rate = 0},
       {"FULL"}},
      {"larger_than_any_pool",
       {.pages = 16, .load = {.large_every = 6, .large_tokens = 400, .large_fits = false}},
       {"FAILED"}},
      {"preempted_while_landing",
       {.decodes = 1, .pages = 18, .load = {.prompt_min = 40, .n = 2}, .copy_rate = 0.1},
       {"preempted and landing"}},
      {"local_while_landing",
       {.decodes = 1, .pages = 24, .cancel_rate = 0, .copy_rate = 0.1},
       {"LOCAL", "local and landing"}},
      {"two_routers", {.routers = 2, .kills = 1, .cuts = 2}, {"COMMIT"}},
      {"router_dies", {.routers = 2, .router_kills = 2}, {"COMMIT"}},
      {"five_restarts_on_one_address", {.restarts_of_one = 5}, {"COMMIT"}},
      {"two_kinds_side_by_side", {.two_kinds = true}, {"COMMIT"}},
  };
  for (const char* message :
       {"GRANT", "COMMIT", "ACK", "RELEASE", "DRAINED", "RESERVE", "PLACED"}) {
    const std::string name = message;
    all.push_back({"lost_" + name, at(name, Strike::kLose), {name}});
    all.back().options.cancel_rate = 1;
  }
  for (const char* message :
       {"OPEN", "PREFILL", "RESERVE", "GRANT", "PLACED", "COMMIT", "ACK", "EVENTS", "FULL"}) {
    const std::string name = message;
    all.push_back({"cancel_at_" + name, at(name, Strike::kCancel), {name, "CANCEL"}});
    all.back().options.load.concurrent_max = 2;
    all.back().options.frames = {.overtake_share = 0.3};
    if (name == "FULL") all.back().options.pages = 10;
  }
  return all;
}

inline std::vector<Scenario> mixtures() {
  return {
      {"one_of_each", {.prefills = 1, .decodes = 1}, {}},
      {"cancels", {.cancel_rate = 1.0}, {"CANCEL"}},
      {"small_pools", {.pages = 16}, {"FULL"}},
      {"sliding_window", {.window = 40}, {}},
      {"stores_ourselves", {.tcp_like = true, .cuts = 4}, {}},
      {"cuts", {.cuts = 6}, {"DRAINED_ALL"}},
      {"stalls", {.cuts = 2, .stalls = 4}, {}},
      {"stops", {.cancel_rate = 1, .copy_rate = 0.2, .stops = 5}, {"quarantined"}},
      {"slow_copies",
       {.pages = 20, .cancel_rate = 3, .copy_rate = 0.05, .cuts = 3, .stalls = 4},
       {"RELEASE"}},
      {"kills", {.kills = 4}, {}},
      {"frames", {.cuts = 2, .frames = {.duplicate_share = 0.1, .overtake_share = 0.3}}, {}},
      {"broken_copies",
       {.transport = {.refuse_share = 0.01, .break_share = 0.01, .connect_failure_share = 0.2}},
       {"FAILED"}},
      {"corrupt_copies",
       {.digest = true, .transport = {.corrupt_share = 0.02}},
       {"NAK", "digest mismatch"}},
      {"corrupt_and_more",
       {.pages = 24,
        .kills = 1,
        .cuts = 2,
        .stops = 1,
        .digest = true,
        .transport = {.refuse_share = 0.005, .corrupt_share = 0.02, .break_share = 0.005},
        .frames = {.duplicate_share = 0.05, .overtake_share = 0.1}},
       {"NAK", "digest mismatch"}},
      {"everything",
       {.routers = 2,
        .pages = 24,
        .kills = 3,
        .cuts = 4,
        .stalls = 2,
        .router_kills = 1,
        .stops = 2,
        .digest = true,
        .frames = {.duplicate_share = 0.05, .overtake_share = 0.1}},
       {}},
      {"no_prefill_worker", {.prefills = 0, .kills = 1}, {}},
  };
}

inline std::vector<Scenario> scenarios() {
  std::vector<Scenario> all = walk_throughs();
  for (Scenario& scenario : mixtures()) all.push_back(std::move(scenario));
  return all;
}

}  // namespace baton::sim
