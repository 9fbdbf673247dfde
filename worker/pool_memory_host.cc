#include "worker/pool_memory.h"

namespace baton {

std::shared_ptr<HandoffMemory> memory_of_pools(const LoadedModel&, const KvTransferConfig&,
                                               const std::string&) {
  return nullptr;
}

}  // namespace baton
