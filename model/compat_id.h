// Two names of what a worker computes: kv_compat_id says whose pages may be exchanged, numerics_id
// whose results are equal bit for bit.
#pragma once

#include <string>

#include "model/kv_layout.h"
#include "model/model_config.h"
#include "model/tensor_store.h"

namespace baton {

// Raised whenever the bytes of a page change their meaning.
constexpr int kKvFormatVersion = 1;

// SHA-256 in hex over: kKvFormatVersion, the config, every tensor's name, type and shape, samples
// of its bytes, the page layout with its dtype. Samples, because hashing all weights would double
// the start-up time of a large model.
std::string kv_compat_id(const ModelConfig& config, const TensorStore& store,
                         const KvLayout& layout);

// Device, ISA (on a GPU with the table of GEMM algorithms), version of the kernels' order of
// additions (split sizes are part of it), KV dtype: "cpu/avx2/1/F16".
std::string numerics_id(const std::string& device, const char* isa, const KvLayout& layout);

}  // namespace baton
