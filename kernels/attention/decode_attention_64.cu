#include "kernels/attention/decode_attention.cuh"

namespace baton {

template void launch_decode_attention<64>(const AttentionParams&, cudaStream_t);

}  // namespace baton
