// bfloat16 as its bits, for host code that passes such arrays on; arithmetic is cpu/half.h's and
// the GPU's.
#pragma once

#include <cstdint>

namespace baton {

struct Bf16 {
  uint16_t bits = 0;
};

}  // namespace baton
