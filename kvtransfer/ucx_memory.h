// Memory that UCX may put from or into: ours, registered with one worker's context, and a peer's,
// by the key that the peer has packed. Handoff thread only, but for construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "kvtransfer/ucx_worker.h"

namespace baton {

// Memory of ours; stays the caller's and must outlive this. Ends before the worker does.
class UcxMemory {
 public:
  static Result<std::unique_ptr<UcxMemory>> make(UcxWorker& worker, std::byte* data, int64_t bytes,
                                                 bool on_gpu);
  ~UcxMemory();
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  // What a peer reaches it by: whoever has it can write here until this ends.
  Result<std::string> pack_key() const;
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  ucp_mem_h handle() const { return handle_; }
  ucs_memory_type_t type() const { return type_; }

 private:
  UcxMemory(UcxWorker& worker, std::byte* data, ucs_memory_type_t type)
      : worker_(worker), data_(data), type_(type) {}

  UcxWorker& worker_;
  std::byte* const data_;
  const ucs_memory_type_t type_;
  ucp_mem_h handle_ = nullptr;
};

// Memory of the peer behind an endpoint. Ends before the endpoint does.
class UcxRemoteMemory {
 public:
  // kUnavailable where no transport of the endpoint reaches it.
  static Result<std::unique_ptr<UcxRemoteMemory>> make(UcxEndpoint& endpoint, uint64_t address,
                                                       const std::string& packed_key);
  ~UcxRemoteMemory() { ucx_.rkey_destroy(key_); }
  UcxRemoteMemory(const UcxRemoteMemory&) = delete;
  UcxRemoteMemory& operator=(const UcxRemoteMemory&) = delete;

  uint64_t address() const { return address_; }
  ucp_rkey_h key() const { return key_; }

 private:
  UcxRemoteMemory(const UcxLibrary& ucx, uint64_t address, ucp_rkey_h key)
      : ucx_(ucx), address_(address), key_(key) {}

  const UcxLibrary& ucx_;
  const uint64_t address_;
  const ucp_rkey_h key_;
};

}  // namespace baton
