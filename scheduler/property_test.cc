// The scheduler under random load, see simulation.h. The seed of a failure is printed; run it again
// with Simulation({seed}).
#include <random>

#include "scheduler/simulation.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int kRuns = 300;

TEST_CASE("random requests over tiny pools get exactly the model's tokens") {
  const uint32_t first_seed = std::random_device()();
  SimulationCounts all;
  for (uint32_t i = 0; i < kRuns; ++i) {
    const uint32_t seed = first_seed + i;
    CAPTURE(seed);
    Simulation simulation({seed});
    REQUIRE_NOTHROW(simulation.run());
    const SimulationCounts& counts = simulation.counts();
    all.tokens += counts.tokens;
    all.handoffs += counts.handoffs;
    all.preempted += counts.preempted;
    all.page_copies += counts.page_copies;
    all.hit_tokens += counts.hit_tokens;
    all.skipped += counts.skipped;
    all.ready_pushes += counts.ready_pushes;
    all.replays += counts.replays;
    for (const auto& [stage, count] : counts.cancelled_at) all.cancelled_at[stage] += count;
  }
  MESSAGE("tokens " << all.tokens << ", handoffs " << all.handoffs << ", steps with preempted "
                    << all.preempted << ", page copies " << all.page_copies << ", hit tokens "
                    << all.hit_tokens << ", skipped chunks " << all.skipped << ", ready pushes "
                    << all.ready_pushes << ", replays " << all.replays);
  // A run that never meets these says nothing about them.
  CHECK(all.preempted > 0);
  CHECK(all.page_copies > 0);
  CHECK(all.hit_tokens > 0);
  CHECK(all.skipped > 0);
  CHECK(all.ready_pushes > 0);
  for (const char* stage :
       {"reserving", "queued", "prefilling", "transferring", "decoding", "preempted"}) {
    CAPTURE(stage);
    CHECK(all.cancelled_at[stage] > 0);
  }
}

}  // namespace
}  // namespace baton
