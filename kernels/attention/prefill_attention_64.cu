#include "kernels/attention/prefill_attention_hopper.cuh"

namespace baton {

template <>
void launch_prefill_attention<64>(const AttentionParams& params, cudaStream_t stream) {
  launch_prefill_attention_hopper<64>(params, stream);
}

}  // namespace baton
