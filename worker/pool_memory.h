// What a worker's pages are made of, for the handoff: in the one file of two that the build chose.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "kvtransfer/handoff_memory.h"
#include "model/engine.h"

namespace baton {

// Null: the host's memory. `clique`: the GPU's NVLink clique (nvlink_clique.h), or empty.
std::shared_ptr<HandoffMemory> memory_of_pools(const LoadedModel& model,
                                               const KvTransferConfig& config,
                                               const std::string& clique);

}  // namespace baton
