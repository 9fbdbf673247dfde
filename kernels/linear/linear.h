// y = x W^T + b, the matrix products of a forward pass, for float and GGUF-quantised weights.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace baton {

class WeightSource;

// A weight as it lies in a file: row-major [rows, cols], rows = output features, cols = input
// features.
struct TensorView {
  Dtype dtype = Dtype::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* data = nullptr;  // borrowed; need not be aligned

  // Where the same bytes can be read, for a backend that keeps no pointer into a mapped file.
  const char* name = "";                 // of the tensor, for messages
  const WeightSource* source = nullptr;  // null: only `data`
  int64_t source_offset = 0;
};

// What a matrix will be multiplied with: its elements get that one's type on a GPU
// (activation_types.h), Normed or T.
enum class MatrixInput : uint8_t { kNormed, kActivation };

// A prepared weight; made by Backend::prepare, used only with the Backend that made it.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

 protected:
  LinearWeight(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}

 private:
  int64_t rows_, cols_;
};

//   x     T [num_tokens, cols]
//   bias  float32 [rows] or null
//   y     Out [num_tokens, rows], row t at y + t * y_stride (0 = rows)
// For quantised weights x is quantised per row in blocks of 32 or 256 (8 bit) first; float weights
// compute in float32.
template <typename T, typename Out = T>
struct LinearArgs {
  const LinearWeight* weight = nullptr;
  const T* x = nullptr;
  const float* bias = nullptr;
  Out* y = nullptr;
  int64_t y_stride = 0;
  int32_t num_tokens = 0;
};

}  // namespace baton
