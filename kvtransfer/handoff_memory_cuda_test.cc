// GPU memory shared by file descriptor and the copies into it, within one process.
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "base/bounded_queue.h"
#include "kernels/cuda/device.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/page_mover.h"
#include "kvtransfer/probe.h"
#include "model/vmm_slabs.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int64_t kBytes = 5 << 20;  // no multiple of the granularity

bool no_gpu() {
  if (cuda_device_count() > 0) return false;
  MESSAGE("no GPU here: skipped");
  return true;
}

// A worker's side of the handoff with its pages on GPU 0.
struct CudaEnd {
  CudaEnd(const KvLayout& layout, int32_t pages, const Clock& clock)
      : pool(layout.groups[0], pages, 4 << 20, vmm_slab_memory(0)),
        mover(make_page_mover(
            {.transports = "mapped,tcp"}, layout, {&pool}, "127.0.0.1", clock,
            [this](MoverEvent event) { (void)events.try_push(std::move(event)); }, nullptr,
            make_cuda_handoff_memory(0))) {}
  MoverEvent wait() { return *events.pop(); }

  PagePool pool;
  BoundedQueue<MoverEvent> events{64};
  std::unique_ptr<PageMover> mover;
};

}  // namespace

TEST_CASE("CUDA: two workers' movers hand pages over in GPU memory, by layer and whole") {
  if (no_gpu()) return;
  open_cuda_device(0);
  constexpr int32_t kPages = 300;
  const KvLayout layout{{KvGroup{.layers = {0, 1},
                                 .num_kv_heads = 2,
                                 .head_dim = 16,
                                 .page_tokens = 64,
                                 .dtype = Dtype::kBF16}}};
  SystemClock clock;
  CudaEnd p(layout, kPages, clock), d(layout, kPages, clock);
  REQUIRE(p.pool.slabs().size() > 1);
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  const int64_t page_bytes = p.pool.page_bytes();
  std::vector<uint8_t> want(static_cast<size_t>(page_bytes));
  p.mover->attach(1, d.mover->offer(1), std::make_shared<std::atomic<int64_t>>(INT64_MAX));
  const MoverEvent attached = p.wait();
  INFO(attached.error);
  REQUIRE_EQ(attached.kind, MoverEvent::Kind::kAttached);

  StepInput step{.step = 1};
  for (const int32_t page : {0, 1, kPages - 1}) {
    for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<uint8_t>(i * 7 + page);
    REQUIRE(memory->write(p.pool.page(page), want.data(), page_bytes).ok());
    step.pushes.push_back(
        {.transfer = 5, .group = 0, .src_page = page, .dst_page = kPages - 1 - page});
  }
  p.mover->begin(5, 1, 9);
  p.mover->layer_written(step, 0);
  p.mover->layer_written(step, 1);
  p.mover->finish(5, 1);
  CHECK_EQ(p.wait().kind, MoverEvent::Kind::kDone);
  for (const PushPage& push : step.pushes) {
    std::vector<uint8_t> got(want.size());
    REQUIRE(memory->read(got.data(), d.pool.page(push.dst_page), page_bytes).ok());
    for (size_t i = 0; i < want.size(); ++i)
      want[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(push.src_page));
    CHECK(got == want);
  }
}

TEST_CASE("CUDA: copies reach memory imported by its descriptor, and are told of in order") {
  if (no_gpu()) return;
  open_cuda_device(0);
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  Result<HandoffMemory::Created> theirs = memory->create(kBytes);
  Result<HandoffMemory::Created> ours = memory->create(kBytes);
  REQUIRE(theirs.ok());
  REQUIRE(ours.ok());
  Result<std::unique_ptr<SharedMemory>> imported = memory->import(theirs->fd.get(), kBytes);
  REQUIRE(imported.ok());
  CHECK_NE((*imported)->data(), theirs->memory->data());

  std::vector<uint8_t> want(kBytes);
  std::iota(want.begin(), want.end(), uint8_t{0});
  REQUIRE(memory->write(ours->memory->data(), want.data(), kBytes).ok());
  PollLoop loop;
  int64_t done = 0;
  auto queue = memory->make_queue(loop, [&](int64_t copies) { done += copies; });
  constexpr int64_t kSlice = 64 << 10;
  for (int64_t at = 0; at < kBytes; at += kSlice) {
    REQUIRE(queue->has_room());
    CHECK_FALSE(queue->copy((*imported)->data() + at, ours->memory->data() + at, kSlice));
  }
  while (done < kBytes / kSlice) loop.poll(true);
  CHECK_EQ(done, kBytes / kSlice);
  std::vector<uint8_t> got(kBytes);
  REQUIRE(memory->read(got.data(), theirs->memory->data(), kBytes).ok());
  CHECK(got == want);
}

TEST_CASE("CUDA: a queue that is destroyed has ended its copies") {
  if (no_gpu()) return;
  open_cuda_device(0);
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  Result<HandoffMemory::Created> from = memory->create(256 << 20);
  Result<HandoffMemory::Created> to = memory->create(256 << 20);
  REQUIRE(from.ok());
  REQUIRE(to.ok());
  const uint64_t want = 0x0123456789abcdef;
  std::byte* const last = from->memory->data() + (256 << 20) - 8;
  REQUIRE(memory->write(last, &want, 8).ok());
  PollLoop loop;
  auto queue = memory->make_queue(loop, [](int64_t) { FAIL("told after its end"); });
  queue->copy(to->memory->data(), from->memory->data(), 256 << 20);
  queue.reset();
  uint64_t got = 0;
  REQUIRE(memory->read(&got, to->memory->data() + (256 << 20) - 8, 8).ok());
  CHECK_EQ(got, want);
  loop.poll(false);
}

TEST_CASE("CUDA: descriptors that are no GPU memory are refused, the measurement is sane") {
  if (no_gpu()) return;
  open_cuda_device(0);
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  CHECK_FALSE(memory->import(ends[0], 4096).ok());
  close(ends[0]);
  close(ends[1]);
  Result<HandoffMemory::Created> scratch = memory->create(kProbeSliceBytes * kProbeSlices);
  REQUIRE(scratch.ok());
  const Result<Measurement> measured = memory->measure(scratch->memory->data());
  REQUIRE(measured.ok());
  CHECK_GT(measured->gbps, 1);
  CHECK_LT(measured->latency_us, 1000);
  MESSAGE("on one GPU: " << measured->gbps << " GB/s, " << measured->latency_us << " us");
}

}  // namespace baton
