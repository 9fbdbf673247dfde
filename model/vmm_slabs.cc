#include "model/vmm_slabs.h"

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/cuda/driver.h"

namespace baton {
namespace {

CUdeviceptr address_of(const std::byte* p) {
  return reinterpret_cast<CUdeviceptr>(p);
}

class VmmSlabMemory final : public SlabMemory {
 public:
  explicit VmmSlabMemory(int32_t device);
  VmmSlabMemory(const VmmSlabMemory&) = delete;
  VmmSlabMemory& operator=(const VmmSlabMemory&) = delete;
  ~VmmSlabMemory() override;

  int64_t granularity() const override { return granularity_; }
  std::byte* reserve(int64_t bytes) override;
  Slab make_slab(std::byte* base, int64_t bytes) override;

 private:
  CUmemGenericAllocationHandle create(int64_t bytes);
  void export_slab(CUmemGenericAllocationHandle allocation, Slab* slab);
  void check(CUresult result, const char* what, int64_t bytes) const;

  const CudaDriver driver_;
  CUmemAllocationProp properties_{};
  int64_t granularity_ = 0;
  std::byte* range_ = nullptr;
  int64_t range_bytes_ = 0;
  std::vector<std::pair<std::byte*, int64_t>> mapped_;
};

VmmSlabMemory::VmmSlabMemory(int32_t device) : driver_(load_cuda_driver()) {
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  // Fabric handles too, until the driver refuses them (create).
  properties_.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC);
  CUmemAllocationProp plain = properties_;
  plain.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  size_t granularity = 0;
  check(driver_.mem_granularity(&granularity, &plain, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "granularity", 0);
  granularity_ = static_cast<int64_t>(granularity);
}

VmmSlabMemory::~VmmSlabMemory() {
  for (const auto& [base, bytes] : mapped_) {
    driver_.mem_unmap(address_of(base), static_cast<size_t>(bytes));
  }
  if (range_ != nullptr) {
    driver_.mem_address_free(address_of(range_), static_cast<size_t>(range_bytes_));
  }
}

void VmmSlabMemory::check(CUresult result, const char* what, int64_t bytes) const {
  if (result == CUDA_SUCCESS) return;
  const char* reason = nullptr;
  driver_.get_error_string(result, &reason);
  throw ConfigError("KV pool on the GPU: " + std::string(what) + " for " + std::to_string(bytes) +
                    " bytes: " + (reason == nullptr ? "unknown error" : reason));
}

std::byte* VmmSlabMemory::reserve(int64_t bytes) {
  CHECK(range_ == nullptr) << "one range a pool";
  CUdeviceptr range = 0;
  check(driver_.mem_address_reserve(&range, static_cast<size_t>(bytes),
                                    static_cast<size_t>(granularity_), 0, 0),
        "no address range", bytes);
  range_ = reinterpret_cast<std::byte*>(range);
  range_bytes_ = bytes;
  return range_;
}

CUmemGenericAllocationHandle VmmSlabMemory::create(int64_t bytes) {
  CUmemGenericAllocationHandle allocation = 0;
  CUresult result = driver_.mem_create(&allocation, static_cast<size_t>(bytes), &properties_, 0);
  const bool fabric = (properties_.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
  if (fabric && result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) {
    // No fabric here, or no right to use it (no IMEX channel).
    const char* reason = nullptr;
    driver_.get_error_string(result, &reason);
    log_debug("fabric_handles_unavailable", {{"reason", reason == nullptr ? "?" : reason}});
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    result = driver_.mem_create(&allocation, static_cast<size_t>(bytes), &properties_, 0);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    int64_t mapped_bytes = 0;
    for (const auto& slab : mapped_) mapped_bytes += slab.second;
    throw ConfigError("KV pool on the GPU: got room for " + std::to_string(mapped_bytes >> 20) +
                      " MiB of pages, want " + std::to_string(range_bytes_ >> 20) +
                      " MiB (kv.pool_mib or gpu_memory_utilization is too high)");
  }
  check(result, "no memory", bytes);
  return allocation;
}

void VmmSlabMemory::export_slab(CUmemGenericAllocationHandle allocation, Slab* slab) {
  int fd = -1;
  check(driver_.mem_export(&fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "export",
        slab->bytes);
  slab->fd = ScopedFd(fd);
  if ((properties_.requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) == 0) return;
  std::array<std::byte, sizeof(CUmemFabricHandle)> handle;
  static_assert(sizeof(handle) == sizeof(*slab->fabric_handle));
  if (driver_.mem_export(handle.data(), allocation, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_SUCCESS) {
    slab->fabric_handle = handle;
  }
}

Slab VmmSlabMemory::make_slab(std::byte* base, int64_t bytes) {
  Slab slab{.fd = {}, .base = base, .bytes = bytes, .fabric_handle = {}};
  const CUmemGenericAllocationHandle allocation = create(bytes);
  const CUresult mapped =
      driver_.mem_map(address_of(base), static_cast<size_t>(bytes), 0, allocation, 0);
  if (mapped == CUDA_SUCCESS) mapped_.emplace_back(base, bytes);
  try {
    check(mapped, "mapping", bytes);
    export_slab(allocation, &slab);
  } catch (...) {
    driver_.mem_release(allocation);
    throw;
  }
  // The mapping and the descriptor hold the memory from here on.
  driver_.mem_release(allocation);
  CUmemAccessDesc access{};
  access.location = properties_.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver_.mem_set_access(address_of(base), static_cast<size_t>(bytes), &access, 1), "access",
        bytes);
  return slab;
}

}  // namespace

std::unique_ptr<SlabMemory> vmm_slab_memory(int32_t device) {
  return std::make_unique<VmmSlabMemory>(device);
}

}  // namespace baton
