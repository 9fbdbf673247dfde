// For tests: small models as GGUF files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace baton {

struct GgufMatrix {
  std::vector<int64_t> dims;  // GGUF's order: innermost first
  Dtype dtype = Dtype::kF32;
  std::string bytes;
};

struct TinyGgufModel {
  uint32_t layers = 0, hidden = 0, inner = 0, heads = 0, kv_heads = 0, context = 256;
  std::string architecture = "llama";
  std::map<std::string, GgufMatrix> tensors;
};

// Writes it to a fresh file (gguf_writer.h) and returns its path.
std::string write_tiny_gguf(const std::string& name, const TinyGgufModel& model);

// Random weights of about 0.05, 100 tokens; `dtype_of` says the type of each matrix by its name
// inside a layer: "attn_q".
TinyGgufModel random_tiny_gguf(const std::function<Dtype(const std::string&)>& dtype_of,
                               uint32_t seed);

// The golden model "llama" as converters write it: rows of q and k permuted for interleaved RoPE.
TinyGgufModel golden_as_gguf();

// The same values as float32.
TinyGgufModel dequantised(TinyGgufModel model);

}  // namespace baton
