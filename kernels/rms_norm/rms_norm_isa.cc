// Compiled once per ISA.
#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {

void rms_norm(const RmsNormArgs<float>& args, int64_t row_begin, int64_t row_end) {
  const int32_t whole = args.cols / 16 * 16, rest = args.cols - whole;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    F32x16 squares = zero();
    for (int32_t i = 0; i < whole; i += 16) squares = fma(load(x + i), load(x + i), squares);
    if (rest > 0) {
      const F32x16 last = load_first(x + whole, rest);
      squares = fma(last, last, squares);
    }
    const float mean = sum_lanes(squares) / static_cast<float>(args.cols);
    const F32x16 scale = broadcast(1.0f / __builtin_sqrtf(mean + args.eps));
    for (int32_t i = 0; i < whole; i += 16) {
      store(y + i, load(x + i) * scale * load(args.weight + i));
    }
    if (rest > 0) {
      const F32x16 last = load_first(x + whole, rest) * scale;
      store_first(y + whole, last * load_first(args.weight + whole, rest), rest);
    }
  }
}

}  // namespace baton::BATON_ISA
