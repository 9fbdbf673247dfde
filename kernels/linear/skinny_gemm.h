// Matrix products of few tokens on the tensor cores' older instructions, which take 8 tokens where
// stream_gemm.h takes 16: the faster ones up to 8 tokens. One order of additions for any number of
// tokens makes a row independent of its batch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/linear/small_gemm.h"

namespace baton {

inline constexpr int32_t kSkinnyTokensMax = 64;

// Raises the kernels' shared memory limits; once before the first product.
void prepare_skinny_gemm();

// Enqueues on `stream`; `num_sms` of the GPU. An element's sum is that of 8 slices of cols, each
// taken in order, added pairwise: the same whatever num_tokens is. The weights are read before the
// kernel waits for earlier ones (launch.h), so nothing may write weights in the same stream without
// a pause. REQUIRES: num_tokens <= kSkinnyTokensMax.
void skinny_gemm(const SmallGemmArgs& args, int32_t num_sms, cudaStream_t stream);

}  // namespace baton
