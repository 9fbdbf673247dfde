// Random schedules of a whole simulated cluster. A failing seed is printed; `sim-run --scenario
// NAME --seed N` repeats it.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/sim/scenarios.h"

#include "tests/doctest.h"

using namespace baton::sim;

TEST_CASE("whole clusters keep every promise under random schedules") {
  constexpr uint64_t kSeeds = 5;
  const uint64_t base = std::random_device()() % 1'000'000;
  for (const Scenario& scenario : scenarios()) {
    for (uint64_t seed = base; seed < base + kSeeds; ++seed) {
      const RunResult result = run_cluster(scenario.options, seed);
      INFO("sim-run --scenario ", scenario.name, " --seed ", seed);
      for (const std::string& violation : result.violations) FAIL_CHECK(violation);
      if (!result.violations.empty()) return;
    }
  }
}

TEST_CASE("a seed reproduces a run exactly") {
  const auto all = scenarios();
  const auto everything = std::find_if(all.begin(), all.end(),
                                       [](const Scenario& s) { return s.name == "everything"; });
  const RunResult first = run_cluster(everything->options, 7);
  const RunResult second = run_cluster(everything->options, 7);
  CHECK(first.digest == second.digest);
  CHECK(first.completed == second.completed);
  CHECK(first.handoffs == second.handoffs);
}

TEST_CASE("every scenario shows what its name says") {
  for (const Scenario& scenario : scenarios()) {
    std::map<std::string, int64_t> seen;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      for (const auto& [what, count] : run_cluster(scenario.options, seed).seen)
        seen[what] += count;
    }
    CAPTURE(scenario.name);
    for (const std::string& what : scenario.shows) {
      CAPTURE(what);
      CHECK(seen[what] > 0);
    }
  }
}

TEST_CASE("the calm cluster really hands pages over") {
  const RunResult result = run_cluster({.cancel_rate = 0}, 1);
  CHECK(result.violations.empty());
  CHECK(result.completed == 30);
  CHECK(result.handoffs > 5);
}

TEST_CASE("seeded bugs are caught") {
  // Slow copies, many cancels and scarce pages: a page given away too early is soon somebody
  // else's.
  const ClusterOptions busy{.decodes = 1,
                            .pages = 16,
                            .load = {.requests = 60},
                            .cancel_rate = 6,
                            .copy_rate = 0.05,
                            .cuts = 2,
                            .stalls = 4};
  const auto caught = [&](SeededBug bug, uint64_t seeds) {
    ClusterOptions options = busy;
    options.bug = bug;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      if (!run_cluster(options, seed).violations.empty()) return true;
    }
    return false;
  };
  CHECK_FALSE(caught(SeededBug::kNone, 20));
  CHECK(caught(SeededBug::kFreesOnTimeout, 400));
  CHECK(caught(SeededBug::kNoGenerationCheck, 400));
  CHECK(caught(SeededBug::kCommitsEarly, 400));
}

TEST_CASE("a digest that is not checked lets a corrupted answer through, which is noticed") {
  ClusterOptions options{.digest = true, .transport = {.corrupt_share = 0.02}};
  const auto caught = [&](SeededBug bug) {
    options.bug = bug;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      if (!run_cluster(options, seed).violations.empty()) return true;
    }
    return false;
  };
  CHECK_FALSE(caught(SeededBug::kNone));
  CHECK(caught(SeededBug::kAcksEarly));
}
