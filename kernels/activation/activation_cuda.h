// The gated activation on a GPU. Contract: activation.h; only enqueues on `stream`. cols is a
// multiple of 8, pointers are 16-byte aligned.
#pragma once

#include <cuda_runtime.h>

#include "kernels/activation/activation.h"
#include "kernels/activation_types.h"

namespace baton {

void activation_cuda(const ActivationArgs<Bf16, F16>& args, cudaStream_t stream);

}  // namespace baton
