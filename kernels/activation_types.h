// Which types the values between the ops of a forward pass have on a backend whose activations are
// T. On CPU all are float32. On a GPU:
//   T (bf16)   q, keys and values, what attention gives, the gated activation: of any size
//   Normed     f16: what a norm bounds, and its product with a matrix (q, k and v before RoPE, gate
//              and up, the last layer's states). Attention scores turn an error of q and k into a
//              factor of e^error, and bf16 has three bits less than f16 has. What exceeds f16
//              becomes its largest value, when it is written or when it is read.
//              What the MLP's norm gives keeps 8 bits in f16 (RmsNormArgs::short_y).
//   Residual   float32: the sum that all layers add to
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace baton {

// IEEE half precision as its bits, as Bf16 is.
struct F16 {
  uint16_t bits = 0;
};

template <typename T>
struct ActivationTypes {
  using Normed = T;
  using Residual = T;
};

template <>
struct ActivationTypes<Bf16> {
  using Normed = F16;
  using Residual = float;
};

}  // namespace baton
