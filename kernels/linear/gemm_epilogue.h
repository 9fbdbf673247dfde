// The kinds of matrix products of a forward pass on a GPU: what their operands and results are.
#pragma once

#include <cstdint>

namespace baton {

//           weight and x   y
//   kStore  f16            f16
//   kAdd    bf16           float32, added to
//   kFloat  f16            float32
enum class GemmEpilogue : uint8_t { kStore, kAdd, kFloat };

constexpr bool has_half_operands(GemmEpilogue epilogue) {
  return epilogue != GemmEpilogue::kAdd;
}
constexpr bool has_float_result(GemmEpilogue epilogue) {
  return epilogue != GemmEpilogue::kStore;
}

}  // namespace baton
