// The table of rotary embeddings: cos and sin of every position, with the scaling of long contexts
// inside.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace baton {

// Angle per position of each of the rotary_dim / 2 frequencies, scaled as RopeConfig says. Linear:
// all divided by factor. Llama 3: long wavelengths divided by factor, a smooth step between. YaRN
// (arXiv:2309.00071): a linear ramp over dimensions between the two. `freq_factors` (GGUF's
// rope_freqs.weight; may be empty) divides each frequency.
std::vector<float> rope_frequencies(const RopeConfig& rope, const std::vector<float>& freq_factors);

// float32 [num_positions, rotary_dim]: rotary_dim / 2 cosines, then as many sines, times the
// attention factor.
std::vector<float> rope_table(const RopeConfig& rope, const std::vector<float>& freq_factors,
                              int32_t num_positions);

}  // namespace baton
