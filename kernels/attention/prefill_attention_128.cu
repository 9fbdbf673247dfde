#include "kernels/attention/prefill_attention.cuh"

namespace baton {

template void launch_prefill_attention<128>(const AttentionParams&, cudaStream_t);

}  // namespace baton
