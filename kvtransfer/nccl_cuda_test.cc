// Transport "nccl" with NCCL itself: what one GPU can show of it, and pages from GPU 0 to GPU 1.
#include <numeric>
#include <vector>

#include "kernels/cuda/stream.h"
#include "kvtransfer/nccl_library.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

#include "kvtransfer/cuda_test_rig.h"

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
const KvTransferConfig kNccl{.require = "nccl", .attach_timeout_ms = 10'000};

bool cannot(int32_t gpus) {
  if (!has_gpus(gpus)) return true;
  if (load_nccl_functions().ok()) return false;
  MESSAGE("no NCCL here: skipped");
  return true;
}

}  // namespace

TEST_CASE("CUDA, nccl: two ranks on one GPU are refused by NCCL, and nothing hangs") {
  if (cannot(1)) return;
  CudaEnd p(kNccl), d(kNccl);
  const MoverEvent failed = attach(p, d);
  CHECK_EQ(failed.kind, MoverEvent::Kind::kAttachFailed);
  MESSAGE(failed.error);
  d.mover->forget(1);
  CHECK_EQ(d.wait().kind, MoverEvent::Kind::kStoresEnded);
}

TEST_CASE("CUDA, nccl: pages from GPU 0 to GPU 1, by layer and whole, then the end of the link") {
  if (cannot(2)) return;
  CudaEnd d(kNccl, kPages, 1), p(kNccl, kPages, 0);
  std::vector<std::vector<int32_t>> all(1, std::vector<int32_t>(kPages));
  std::iota(all[0].begin(), all[0].end(), 0);
  d.mover->allow(1, 9, all);
  const MoverEvent attached = attach(p, d);
  INFO(attached.error);
  REQUIRE_EQ(attached.kind, MoverEvent::Kind::kAttached);
  MESSAGE(attached.gbps << " GB/s, " << attached.latency_us << " us");

  StepInput step{.step = 1};
  std::vector<PushPage> whole;
  for (int32_t page = 0; page < kPages; ++page) {
    p.fill(page);
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
  for (int32_t page = 0; page < kPages; ++page) REQUIRE(d.holds(kPages - 1 - page, page));
  p.mover->detach(1);
  CHECK_EQ(p.wait().kind, MoverEvent::Kind::kDetached);
  d.mover->forget(1);
  CHECK_EQ(d.wait().kind, MoverEvent::Kind::kStoresEnded);
}

}  // namespace baton
