#include "model/vmm_slabs.h"

#include <cuda_runtime.h>

#include "base/status.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/testing.h"

#include "tests/doctest.h"

namespace baton {
namespace {

KvGroup group_of(int32_t num_layers, int32_t head_dim, int32_t page_tokens) {
  std::vector<int32_t> layers(num_layers);
  return {.layers = layers,
          .num_kv_heads = 2,
          .head_dim = head_dim,
          .page_tokens = page_tokens,
          .dtype = Dtype::kBF16};
}

// A second mapping of a slab, as another process would have it.
class Mapping {
 public:
  Mapping(const CudaDriver& driver, const Slab& slab) : driver_(driver), bytes_(slab.bytes) {
    CUmemGenericAllocationHandle allocation = 0;
    void* fd = reinterpret_cast<void*>(static_cast<intptr_t>(slab.fd.get()));
    require(driver.mem_import(&allocation, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    require(driver.mem_address_reserve(&base_, bytes_, 0, 0, 0));
    require(driver.mem_map(base_, bytes_, 0, allocation, 0));
    require(driver.mem_release(allocation));
    CUmemAccessDesc access{};
    access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    require(driver.mem_set_access(base_, bytes_, &access, 1));
  }
  ~Mapping() {
    driver_.mem_unmap(base_, bytes_);
    driver_.mem_address_free(base_, bytes_);
  }
  std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }

 private:
  void require(CUresult result) { driver_check(driver_, result, "mapping"); }
  const CudaDriver& driver_;
  const size_t bytes_;
  CUdeviceptr base_ = 0;
};

std::byte first_byte(const std::byte* device) {
  std::byte value{};
  cuda_check(cudaMemcpy(&value, device, 1, cudaMemcpyDefault), "read");
  return value;
}

}  // namespace

TEST_CASE("CUDA: pages are contiguous over slabs of GPU memory, each page whole in one slab") {
  if (no_gpu()) return;
  open_cuda_device(0);
  // 96 KiB, 640 KiB and 4 MiB a page.
  for (const KvGroup& group : {group_of(3, 64, 64), group_of(16, 80, 64), group_of(32, 256, 64)}) {
    const int32_t num_pages = 137;
    const PagePool pool(group, num_pages, 8 << 20, vmm_slab_memory(0));
    CAPTURE(pool.page_bytes());
    int64_t covered = 0;
    for (const Slab& slab : pool.slabs()) {
      CHECK(slab.base == pool.base() + covered);
      CHECK(slab.bytes % (2 << 20) == 0);
      CHECK(slab.fd.valid());
      covered += slab.bytes;
    }
    CHECK(covered >= num_pages * pool.page_bytes());
    CHECK(pool.slabs().size() > 1);
    for (int32_t page = 0; page < num_pages; ++page) {
      cuda_check(cudaMemset(pool.page(page), page + 1, pool.page_bytes()), "write");
    }
    for (int32_t page = 0; page < num_pages; ++page) {
      CHECK(first_byte(pool.page(page)) == std::byte(page + 1));
      CHECK(first_byte(pool.page(page) + pool.page_bytes() - 1) == std::byte(page + 1));
    }
  }
}

TEST_CASE("CUDA: a slab's descriptor shows the pool's bytes to whoever imports it") {
  if (no_gpu()) return;
  open_cuda_device(0);
  const CudaDriver driver = load_cuda_driver();
  const PagePool pool(group_of(32, 128, 64), 8, 8 << 20, vmm_slab_memory(0));
  const Slab& slab = pool.slabs().back();
  cuda_check(cudaMemset(slab.base, 42, slab.bytes), "write");
  const Mapping other(driver, slab);
  CHECK(first_byte(other.base()) == std::byte{42});
  cuda_check(cudaMemset(other.base(), 43, 1), "write");
  CHECK(first_byte(slab.base) == std::byte{43});
}

TEST_CASE("CUDA: a pool larger than the GPU is one clear error, and gives all memory back") {
  if (no_gpu()) return;
  open_cuda_device(0);
  size_t before = 0, after = 0, total = 0;
  cuda_check(cudaMemGetInfo(&before, &total), "memory");
  const KvGroup group = group_of(32, 128, 64);
  const auto too_many = static_cast<int32_t>(total / group.page_bytes() + 10);
  CHECK_THROWS_WITH_AS(PagePool(group, too_many, int64_t{1} << 30, vmm_slab_memory(0)),
                       doctest::Contains("got room for "), ConfigError);
  cuda_check(cudaMemGetInfo(&after, &total), "memory");
  CHECK(after + (64 << 20) > before);
}

}  // namespace baton
