// Writes models of a real shape with random weights, to time loading from a disk.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/dtype.h"

namespace baton {

// `shape`: a folder with a config.json, of whose layers as many are taken as fit into `bytes_max`.
// kBF16: makes the folder `path` with config.json and model.safetensors; a block type: the GGUF
// file `path`, norms float32. Every weight is finite. Returns when the disk has everything. Throws
// ConfigError.
void write_dummy_model(const std::string& shape, Dtype dtype, int64_t bytes_max,
                       const std::string& path);

}  // namespace baton
