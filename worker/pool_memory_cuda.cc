#include "worker/pool_memory.h"

namespace baton {

std::shared_ptr<HandoffMemory> memory_of_pools(const LoadedModel& model,
                                               const KvTransferConfig& config,
                                               const std::string& clique) {
  if (model.cuda_device < 0) return nullptr;
  return make_cuda_handoff_memory(model.cuda_device, config.push_sms, clique);
}

}  // namespace baton
