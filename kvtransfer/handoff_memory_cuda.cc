// HandoffMemory of a GPU: slabs are VMM allocations that travel between processes as POSIX file
// descriptors (CUDA driver API, "Virtual Memory Management"); copies: copy_queue_cuda.h.
#include <cuda_runtime.h>

#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/driver.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kvtransfer/copy_queue_cuda.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/marked_stream_cuda.h"
#include "kvtransfer/page_hasher_cuda.h"
#include "model/vmm_slabs.h"

namespace baton {
namespace {

CUmemLocation location_of(int32_t device) {
  return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

// A peer's allocation at an address of ours, taken away with the object; the memory itself lives
// while anybody maps it.
class CudaMapping final : public SharedMemory {
 public:
  // `bytes`: a multiple of the granularity. Throws CudaError; `handle` stays the caller's.
  CudaMapping(const CudaDriver& driver, int32_t device, CUmemGenericAllocationHandle handle,
              int64_t bytes)
      : SharedMemory(map(driver, device, handle, bytes)), driver_(driver), bytes_(bytes) {}
  ~CudaMapping() override {
    unmap(driver_, reinterpret_cast<CUdeviceptr>(data()), static_cast<size_t>(bytes_));
  }

 private:
  static std::byte* map(const CudaDriver& driver, int32_t device,
                        CUmemGenericAllocationHandle handle, int64_t bytes) {
    const auto size = static_cast<size_t>(bytes);
    CUdeviceptr at = 0;
    driver_check(driver, driver.mem_address_reserve(&at, size, 0, 0, 0), "reserve addresses");
    try {
      driver_check(driver, driver.mem_map(at, size, 0, handle, 0), "map shared GPU memory");
    } catch (...) {
      driver.mem_address_free(at, size);
      throw;
    }
    const CUmemAccessDesc access{.location = location_of(device),
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUresult allowed = driver.mem_set_access(at, size, &access, 1);
    if (allowed != CUDA_SUCCESS) unmap(driver, at, size);
    driver_check(driver, allowed, "access to shared GPU memory");
    return reinterpret_cast<std::byte*>(at);
  }
  static void unmap(const CudaDriver& driver, CUdeviceptr at, size_t size) {
    driver.mem_unmap(at, size);
    driver.mem_address_free(at, size);
  }

  const CudaDriver& driver_;
  const int64_t bytes_;
};

// An allocation of our own.
class OwnSlab final : public SharedMemory {
 public:
  OwnSlab(std::unique_ptr<SlabMemory> memory, std::byte* data)
      : SharedMemory(data), memory_(std::move(memory)) {}

 private:
  const std::unique_ptr<SlabMemory> memory_;  // takes the mapping down with it
};

// A plain allocation.
class OwnBuffer final : public SharedMemory {
 public:
  explicit OwnBuffer(DeviceBuffer buffer)
      : SharedMemory(buffer.data()), buffer_(std::move(buffer)) {}

 private:
  const DeviceBuffer buffer_;
};

class CudaHandoffMemory final : public HandoffMemory {
 public:
  CudaHandoffMemory(int32_t device, int32_t push_sms, std::string clique)
      : device_(made_current(device)),
        push_sms_(push_sms),
        clique_(std::move(clique)),
        driver_(load_cuda_driver()) {
    granularity_ = vmm_slab_memory(device)->granularity();
  }

  Kind kind() const override { return Kind::kCuda; }
  bool waits_for_events() const override { return true; }
  Result<Created> create(int64_t bytes) override;
  Result<std::unique_ptr<SharedMemory>> allocate(int64_t bytes) override;
  Result<std::unique_ptr<SharedMemory>> import(int fd, int64_t bytes) override;
  std::string fabric() const override { return clique_; }
  Result<std::unique_ptr<SharedMemory>> import_handle(const FabricHandle& handle,
                                                      int64_t bytes) override;
  Status read(void* host, const std::byte* from, int64_t bytes) override {
    return copy_now(host, from, bytes, cudaMemcpyDeviceToHost);
  }
  Status write(std::byte* to, const void* host, int64_t bytes) override {
    return copy_now(to, host, bytes, cudaMemcpyHostToDevice);
  }
  std::unique_ptr<CopyQueue> make_queue(PollLoop& loop, CopyQueue::Done done) override {
    cuda_check(cudaSetDevice(device_), "handoff: device");
    return std::make_unique<CudaCopyQueue>(loop, push_sms_, std::move(done));
  }
  std::unique_ptr<MarkedStream> make_marked_stream(MarkedStream::Passed passed) override {
    cuda_check(cudaSetDevice(device_), "handoff: device");
    return std::make_unique<CudaMarkedStream>(device_, std::move(passed));
  }
  std::unique_ptr<PageHasher> make_hasher(std::vector<PagePool*> pools) override {
    return make_cuda_page_hasher(device_, std::move(pools));
  }

 private:
  static int32_t made_current(int32_t device) {
    cuda_check(cudaSetDevice(device), "handoff: device");
    return device;
  }
  int64_t rounded(int64_t bytes) const {
    return (bytes + granularity_ - 1) / granularity_ * granularity_;
  }
  std::unique_ptr<SharedMemory> map_and_release(CUmemGenericAllocationHandle handle,
                                                int64_t bytes) {
    // The mapping keeps the memory; the handle has done its work.
    struct Release {
      const CudaDriver& driver;
      CUmemGenericAllocationHandle handle;
      ~Release() { driver.mem_release(handle); }
    } release{driver_, handle};
    return std::make_unique<CudaMapping>(driver_, device_, handle, rounded(bytes));
  }
  Result<std::unique_ptr<SharedMemory>> import_as(CUmemAllocationHandleType type, void* key,
                                                  int64_t bytes);
  // On a stream of our own: a plain cudaMemcpy from pageable memory may return before the bytes are
  // there, and a peer that looks at once would not see them.
  Status copy_now(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    try {
      cuda_check(cudaSetDevice(device_), "handoff: device");
      cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_.get()),
                 "handoff: copy");
      stream_.synchronize();
      return {};
    } catch (const CudaError& error) {
      return unavailable(error.what());
    }
  }

  const int32_t device_;
  const int32_t push_sms_;
  const std::string clique_;
  const CudaDriver driver_;
  CudaStream stream_;  // after device_ is current
  int64_t granularity_ = 0;
};

Result<HandoffMemory::Created> CudaHandoffMemory::create(int64_t bytes) {
  try {
    cuda_check(cudaSetDevice(device_), "handoff: device");
    std::unique_ptr<SlabMemory> memory = vmm_slab_memory(device_);
    std::byte* const base = memory->reserve(rounded(bytes));
    Slab slab = memory->make_slab(base, rounded(bytes));
    return Created{.memory = std::make_unique<OwnSlab>(std::move(memory), base),
                   .key = {.fd = std::move(slab.fd), .handle = slab.fabric_handle}};
  } catch (const std::exception& error) {
    return unavailable(error.what());
  }
}

Result<std::unique_ptr<SharedMemory>> CudaHandoffMemory::allocate(int64_t bytes) {
  try {
    cuda_check(cudaSetDevice(device_), "handoff: device");
    return std::unique_ptr<SharedMemory>(new OwnBuffer(DeviceBuffer(bytes)));
  } catch (const std::exception& error) {
    return unavailable(error.what());
  }
}

Result<std::unique_ptr<SharedMemory>> CudaHandoffMemory::import(int fd, int64_t bytes) {
  return import_as(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                   reinterpret_cast<void*>(static_cast<intptr_t>(fd)), bytes);
}

Result<std::unique_ptr<SharedMemory>> CudaHandoffMemory::import_handle(const FabricHandle& handle,
                                                                       int64_t bytes) {
  CUmemFabricHandle copy;
  static_assert(sizeof(copy) == sizeof(handle));
  std::memcpy(&copy, handle.data(), sizeof(copy));
  return import_as(CU_MEM_HANDLE_TYPE_FABRIC, &copy, bytes);
}

Result<std::unique_ptr<SharedMemory>> CudaHandoffMemory::import_as(CUmemAllocationHandleType type,
                                                                   void* key, int64_t bytes) {
  try {
    cuda_check(cudaSetDevice(device_), "handoff: device");
    CUmemGenericAllocationHandle handle = 0;
    driver_check(driver_, driver_.mem_import(&handle, key, type), "import the peer's GPU memory");
    return map_and_release(handle, bytes);
  } catch (const CudaError& error) {
    return unavailable(error.what());
  }
}

}  // namespace

std::unique_ptr<HandoffMemory> make_cuda_handoff_memory(int32_t device, int32_t push_sms,
                                                        std::string clique) {
  return std::make_unique<CudaHandoffMemory>(device, push_sms, std::move(clique));
}

}  // namespace baton
