// Workers whose pages are on a GPU, in one process, for the CUDA tests of this folder. Included
// after all other headers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "kernels/cuda/device.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/mover.h"
#include "model/vmm_slabs.h"

#include "tests/doctest.h"

namespace baton {

// False: the test is skipped. GPU 0 is the calling thread's.
inline bool has_gpus(int32_t count) {
  if (cuda_device_count() < count) {
    MESSAGE("fewer than " << count << " GPUs here: skipped");
    return false;
  }
  open_cuda_device(0);
  return true;
}

struct CudaEnd {
  explicit CudaEnd(const KvTransferConfig& config, int32_t num_pages = 300, int32_t device = 0,
                   const Mover::Decorator& decorator = {})
      : memory(opened(device)),
        pool(layout.groups[0], num_pages, 4 << 20, vmm_slab_memory(device)),
        mover(std::make_unique<Mover>(
            config, layout, std::vector<PagePool*>{&pool}, "127.0.0.1", clock,
            [this](MoverEvent event) { (void)events.try_push(std::move(event)); }, decorator,
            nullptr, memory)) {}
  static std::shared_ptr<HandoffMemory> opened(int32_t device) {
    open_cuda_device(device);
    return make_cuda_handoff_memory(device);
  }
  MoverEvent wait() { return *events.pop(); }

  // Page `page` holds bytes that no other page has.
  void fill(int32_t page) {
    const std::vector<uint8_t> bytes = bytes_of(page);
    REQUIRE(memory->write(pool.page(page), bytes.data(), pool.page_bytes()).ok());
  }
  // Whether `page` holds what fill(source) writes.
  bool holds(int32_t page, int32_t source) {
    std::vector<uint8_t> got(static_cast<size_t>(pool.page_bytes()));
    REQUIRE(memory->read(got.data(), pool.page(page), pool.page_bytes()).ok());
    return got == bytes_of(source);
  }

  const KvLayout layout{{KvGroup{.layers = {0, 1},
                                 .num_kv_heads = 2,
                                 .head_dim = 16,
                                 .page_tokens = 64,
                                 .dtype = Dtype::kBF16}}};
  const SystemClock clock;
  const std::shared_ptr<HandoffMemory> memory;
  PagePool pool;
  BoundedQueue<MoverEvent> events{64};
  std::unique_ptr<PageMover> mover;

 private:
  std::vector<uint8_t> bytes_of(int32_t page) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(pool.page_bytes()));
    uint32_t word = static_cast<uint32_t>(page);
    for (uint8_t& byte : bytes)
      byte = static_cast<uint8_t>((word = word * 1664525 + 1013904223) >> 24);
    return bytes;
  }
};

// P's link 1 to D, which calls it 1 too.
inline MoverEvent attach(CudaEnd& p, CudaEnd& d) {
  p.mover->attach(1, d.mover->offer(1), std::make_shared<std::atomic<int64_t>>(INT64_MAX));
  return p.wait();
}

}  // namespace baton
