// Compiled once per ISA.
#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {
namespace {

// x * sigmoid(x).
BATON_INLINE F32x16 silu(F32x16 x) {
  return x / (broadcast(1.0f) + exp(zero() - x));
}

// The tanh approximation of GELU: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
BATON_INLINE F32x16 gelu_tanh(F32x16 x) {
  const F32x16 cubic = fma(x * x * x, broadcast(0.044715f), x);
  return broadcast(0.5f) * x * (broadcast(1.0f) + tanh(cubic * broadcast(0.79788456f)));
}

template <Activation kKind>
void activate(const ActivationArgs<float>& args, int64_t row_begin, int64_t row_end) {
  const auto act = [](F32x16 x) { return kKind == Activation::kSilu ? silu(x) : gelu_tanh(x); };
  const int32_t whole = args.cols / 16 * 16, rest = args.cols - whole;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* gate = args.gate_up + row * 2 * args.cols;
    const float* up = gate + args.cols;
    float* y = args.y + row * args.cols;
    for (int32_t i = 0; i < whole; i += 16) store(y + i, act(load(gate + i)) * load(up + i));
    if (rest > 0) {
      const F32x16 last = act(load_first(gate + whole, rest)) * load_first(up + whole, rest);
      store_first(y + whole, last, rest);
    }
  }
}

}  // namespace

void activation(const ActivationArgs<float>& args, int64_t row_begin, int64_t row_end) {
  switch (args.kind) {
    case Activation::kSilu:
      return activate<Activation::kSilu>(args, row_begin, row_end);
    case Activation::kGeluTanh:
      return activate<Activation::kGeluTanh>(args, row_begin, row_end);
  }
}

}  // namespace baton::BATON_ISA
