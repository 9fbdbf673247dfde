// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight, per row.
#pragma once

#include <cstdint>

namespace baton {

//   x, y    T [rows, cols], row r starts at r * stride (elements); y may be x
//   weight  float32 [cols]
template <typename T>
struct RmsNormArgs {
  const T* x = nullptr;
  const float* weight = nullptr;
  T* y = nullptr;
  int64_t rows = 0;
  int32_t cols = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  float eps = 0;
};

}  // namespace baton
