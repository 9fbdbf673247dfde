// The gated activation of an MLP: y = act(gate) * up.
#pragma once

#include <cstdint>

namespace baton {

enum class Activation : uint8_t { kSilu, kGeluTanh };

//   gate_up  float32 [rows, 2 * cols]: gate, then up
//   y        float32 [rows, cols]
struct ActivationArgs {
  const float* gate_up = nullptr;
  float* y = nullptr;
  int64_t rows = 0;
  int32_t cols = 0;
  Activation kind = Activation::kSilu;
};

}  // namespace baton
