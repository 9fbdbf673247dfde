// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight, per row.
#pragma once

#include <cstdint>

namespace baton {

//   x       T [rows, cols], row r starts at r * x_stride (elements)
//   weight  float32 [cols]
//   y       Out [rows, cols], rows y_stride apart; of x's type it may be x
// `short_y`: a GPU keeps bf16's 8 significant bits of y, in f16. Tensor cores take less power for
// factors whose low bits are 0, and the clock falls less.
template <typename T, typename Out = T>
struct RmsNormArgs {
  const T* x = nullptr;
  const float* weight = nullptr;
  Out* y = nullptr;
  int64_t rows = 0;
  int32_t cols = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  float eps = 0;
  bool short_y = false;
};

}  // namespace baton
