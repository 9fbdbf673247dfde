// The gated activation on a GPU. Contract: activation.h; only enqueues on `stream`. cols is a
// multiple of 8, pointers are 16-byte aligned.
#pragma once

#include <cuda_runtime.h>

#include "kernels/activation/activation.h"
#include "kernels/bf16.h"

namespace baton {

void activation_cuda(const ActivationArgs<Bf16>& args, cudaStream_t stream);

}  // namespace baton
