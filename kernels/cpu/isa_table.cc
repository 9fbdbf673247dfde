// Compiled once per ISA: the table of its loops.
#include "kernels/cpu/isa_ops.h"

namespace baton::BATON_ISA {

extern const CpuIsa kIsa;
const CpuIsa kIsa = {
    .name = kName,
    .token_tile = kTokenTile,
    .quantize = quantize,
    .linear_quantized = linear_quantized,
    .linear_float = linear_float,
    .rms_norm = rms_norm,
    .activation = activation,
    .rope_kv = rope_kv,
    .attention = attention,
};

}  // namespace baton::BATON_ISA
