// sim-run [--scenario NAME] [--seeds N] [--seed FIRST]: many random schedules, one line a scenario;
// non-zero exit if a promise broke.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/sim/scenarios.h"

int main(int argc, char** argv) {
  std::string only;
  uint64_t seeds = 1;
  uint64_t first = 1;
  CLI::App app("Simulated clusters under random schedules");
  app.add_option("--scenario", only, "Only this one");
  app.add_option("--seeds", seeds, "Schedules of each scenario");
  app.add_option("--seed", first, "The first seed");
  CLI11_PARSE(app, argc, argv);

  int failed = 0;
  int passed = 0;
  for (const baton::sim::Scenario& scenario : baton::sim::scenarios()) {
    if (!only.empty() && scenario.name != only) continue;
    baton::sim::RunResult sum;
    int bad = 0;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
      const baton::sim::RunResult result = baton::sim::run_cluster(scenario.options, seed);
      sum.completed += result.completed;
      sum.cancelled += result.cancelled;
      sum.handoffs += result.handoffs;
      if (result.violations.empty()) continue;
      ++bad;
      std::printf("%s --seed %llu: %s\n", scenario.name.c_str(),
                  static_cast<unsigned long long>(seed), result.violations.front().c_str());
    }
    std::printf("%-20s %llu schedules, %d completed, %d cancelled, %lld handoffs, %d bad\n",
                scenario.name.c_str(), static_cast<unsigned long long>(seeds), sum.completed,
                sum.cancelled, static_cast<long long>(sum.handoffs), bad);
    std::fflush(stdout);
    failed += bad;
    passed += static_cast<int>(seeds) - bad;
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}
