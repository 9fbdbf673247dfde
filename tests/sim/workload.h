// What the simulated clients ask for.
#pragma once

#include <vector>

#include "tests/sim/cluster.h"
#include "tests/sim/processes.h"
#include "tests/sim/random.h"

namespace baton::sim {

SamplingSpec random_spec(const Workload& load, Random& random);
// Few different beginnings, so that prefixes are shared.
std::vector<TokenId> random_prompt(const Workload& load, bool large, Random& random);
// The conversation so far (of the first choice) and a few tokens more.
std::vector<TokenId> next_turn(const Client& before, Random& random);

}  // namespace baton::sim
