// Random numbers as a function of their name: (seed, choice, position) gives the same number on
// every worker, in every batch and on every replay. Philox 4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace baton {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1), 53 bits, for the token at `position` of `choice`.
double uniform_at(uint64_t seed, int32_t choice, int32_t position);

}  // namespace baton
