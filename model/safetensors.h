// Reader for the safetensors format (github.com/huggingface/safetensors): u64 little-endian header
// length, JSON header, buffer. Every rule of the format is checked; a file that breaks one is
// refused with a line that names it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/tensor_store.h"

namespace baton {

// `path`: a .safetensors file, or a folder with model.safetensors or with
// model.safetensors.index.json and its shards. Throws ConfigError.
TensorStore open_safetensors(const std::string& path);

struct FloatTensor {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

// Writes float32 tensors. Throws ConfigError when the file cannot be written.
void write_safetensors(const std::string& path, const std::map<std::string, FloatTensor>& tensors);

}  // namespace baton
