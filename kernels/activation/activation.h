// The gated activation of an MLP: y = act(gate) * up.
#pragma once

#include <cstdint>

namespace baton {

enum class Activation : uint8_t { kSilu, kGeluTanh };

//   gate_up  In [rows, 2 * cols]: gate, then up
//   y        T [rows, cols]
template <typename T, typename In = T>
struct ActivationArgs {
  const In* gate_up = nullptr;
  T* y = nullptr;
  int64_t rows = 0;
  int32_t cols = 0;
  Activation kind = Activation::kSilu;
};

}  // namespace baton
