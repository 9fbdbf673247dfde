#include "kvtransfer/ucx_memory.h"

namespace baton {

Result<std::unique_ptr<UcxMemory>> UcxMemory::make(UcxWorker& worker, std::byte* data,
                                                   int64_t bytes, bool on_gpu) {
  const ucs_memory_type_t type = on_gpu ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  std::unique_ptr<UcxMemory> memory(new UcxMemory(worker, data, type));
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = data;
  params.length = static_cast<size_t>(bytes);
  params.memory_type = type;
  const ucs_status_t status = worker.ucx().mem_map(worker.context_, &params, &memory->handle_);
  if (status != UCS_OK) return ucx_error(worker.ucx(), "registering memory", status);
  return memory;
}

UcxMemory::~UcxMemory() {
  if (handle_ != nullptr) worker_.ucx().mem_unmap(worker_.context_, handle_);
}

Result<std::string> UcxMemory::pack_key() const {
  const UcxLibrary& ucx = worker_.ucx();
  void* packed = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucx.rkey_pack(worker_.context_, handle_, &packed, &bytes);
  if (status != UCS_OK) return ucx_error(ucx, "packing a key", status);
  std::string key(static_cast<const char*>(packed), bytes);
  ucx.rkey_buffer_release(packed);
  return key;
}

Result<std::unique_ptr<UcxRemoteMemory>> UcxRemoteMemory::make(UcxEndpoint& endpoint,
                                                               uint64_t address,
                                                               const std::string& packed_key) {
  const UcxLibrary& ucx = endpoint.worker_.ucx();
  ucp_rkey_h key = nullptr;
  const ucs_status_t status = ucx.ep_rkey_unpack(endpoint.endpoint_, packed_key.data(), &key);
  if (status != UCS_OK) return ucx_error(ucx, "the peer's memory", status);
  return std::unique_ptr<UcxRemoteMemory>(new UcxRemoteMemory(ucx, address, key));
}

}  // namespace baton
