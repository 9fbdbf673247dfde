// Transport "nccl" with NCCL itself: what one GPU can show of it, and pages from GPU 0 to GPU 1.
#include <atomic>
#include <numeric>
#include <vector>

#include "base/bounded_queue.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/stream.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/nccl_library.h"
#include "kvtransfer/page_mover.h"
#include "model/vmm_slabs.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "tests/doctest.h"

namespace baton {
namespace {

#ifdef NCCL_MAJOR
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8);
#endif

constexpr int32_t kPages = 300;

KvLayout small_layout() {
  return {{KvGroup{.layers = {0, 1},
                   .num_kv_heads = 2,
                   .head_dim = 16,
                   .page_tokens = 64,
                   .dtype = Dtype::kBF16}}};
}

struct End {
  End(int32_t device, const KvLayout& layout, const Clock& clock)
      : memory(opened(device)),
        pool(layout.groups[0], kPages, 4 << 20, vmm_slab_memory(device)),
        mover(make_page_mover(
            {.require = "nccl", .attach_timeout_ms = 10'000}, layout, {&pool}, "127.0.0.1", clock,
            [this](MoverEvent event) { (void)events.try_push(std::move(event)); }, nullptr,
            make_cuda_handoff_memory(device))) {}
  static std::unique_ptr<HandoffMemory> opened(int32_t device) {
    open_cuda_device(device);
    return make_cuda_handoff_memory(device);
  }
  MoverEvent wait() { return *events.pop(); }

  const std::unique_ptr<HandoffMemory> memory;
  PagePool pool;
  BoundedQueue<MoverEvent> events{64};
  std::unique_ptr<PageMover> mover;
};

bool cannot(int32_t gpus) {
  if (cuda_device_count() < gpus) {
    MESSAGE("fewer than " << gpus << " GPUs here: skipped");
    return true;
  }
  if (load_nccl_functions().ok()) return false;
  MESSAGE("no NCCL here: skipped");
  return true;
}

std::shared_ptr<std::atomic<int64_t>> long_lease() {
  return std::make_shared<std::atomic<int64_t>>(INT64_MAX);
}

}  // namespace

TEST_CASE("CUDA, nccl: two ranks on one GPU are refused by NCCL, and nothing hangs") {
  if (cannot(1)) return;
  const KvLayout layout = small_layout();
  const SystemClock clock;
  End p(0, layout, clock), d(0, layout, clock);
  p.mover->attach(1, d.mover->offer(1), long_lease());
  const MoverEvent failed = p.wait();
  CHECK_EQ(failed.kind, MoverEvent::Kind::kAttachFailed);
  MESSAGE(failed.error);
  d.mover->forget(1);
  CHECK_EQ(d.wait().kind, MoverEvent::Kind::kStoresEnded);
}

TEST_CASE("CUDA, nccl: pages from GPU 0 to GPU 1, by layer and whole, then the end of the link") {
  if (cannot(2)) return;
  const KvLayout layout = small_layout();
  const SystemClock clock;
  End d(1, layout, clock), p(0, layout, clock);
  const int64_t page_bytes = p.pool.page_bytes();
  std::vector<std::vector<int32_t>> all(1, std::vector<int32_t>(kPages));
  std::iota(all[0].begin(), all[0].end(), 0);
  d.mover->allow(1, 9, all);
  p.mover->attach(1, d.mover->offer(1), long_lease());
  const MoverEvent attached = p.wait();
  INFO(attached.error);
  REQUIRE_EQ(attached.kind, MoverEvent::Kind::kAttached);
  MESSAGE(attached.gbps << " GB/s, " << attached.latency_us << " us");

  StepInput step{.step = 1};
  std::vector<PushPage> whole;
  for (int32_t page = 0; page < kPages; ++page) {
    std::vector<uint8_t> bytes(static_cast<size_t>(page_bytes));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + page);
    REQUIRE(p.memory->write(p.pool.page(page), bytes.data(), page_bytes).ok());
    auto& pushed = page % 2 == 0 ? step.pushes : whole;
    pushed.push_back({.transfer = 5, .group = 0, .src_page = page, .dst_page = kPages - 1 - page});
  }
  CudaStream stream;
  CudaEvent written;
  written.record(stream.get());
  p.mover->begin(5, 1, 9);
  p.mover->push(whole);
  CHECK(p.mover->layers_enqueued(step, std::vector<void*>(2, written.get())));
  p.mover->finish(5, 1);
  REQUIRE_EQ(p.wait().kind, MoverEvent::Kind::kDone);
  for (int32_t page = 0; page < kPages; ++page) {
    std::vector<uint8_t> got(static_cast<size_t>(page_bytes)), want(got.size());
    for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<uint8_t>(i * 7 + page);
    REQUIRE(d.memory->read(got.data(), d.pool.page(kPages - 1 - page), page_bytes).ok());
    REQUIRE(got == want);
  }
  p.mover->detach(1);
  CHECK_EQ(p.wait().kind, MoverEvent::Kind::kDetached);
  d.mover->forget(1);
  CHECK_EQ(d.wait().kind, MoverEvent::Kind::kStoresEnded);
}

}  // namespace baton
