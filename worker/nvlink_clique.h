// Which NVLink clique a GPU belongs to, as its driver says (NVML, loaded at run time): the GPUs
// that reach each other's memory by NVLink, on an NVL72 those of one rack's partition. Called once
// by worker_process.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace baton {

// "<cluster uuid>.<clique id>", the form of the node label nvidia.com/gpu.clique. Empty for a
// cluster of zeros, which is what a GPU outside any says.
std::string clique_name(const std::array<uint8_t, 16>& cluster_uuid, uint32_t clique_id);

// `cuda_device`: the ordinal that CUDA knows the GPU by. Empty where there is no such clique: no
// driver, one without fabric information, a GPU that is in none. Waits at most `wait_ms` for a
// fabric that is coming up.
std::string nvlink_clique(int32_t cuda_device, int64_t wait_ms);

}  // namespace baton
