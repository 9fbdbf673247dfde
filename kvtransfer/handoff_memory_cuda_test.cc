// GPU memory shared by file descriptor and the copies into it, within one process.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <semaphore>
#include <thread>
#include <vector>

#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kvtransfer/cuda_test_rig.h"
#include "kvtransfer/fault_transport.h"
#include "kvtransfer/page_digest.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/push_kernel.h"

namespace baton {
namespace {

constexpr int64_t kBytes = 5 << 20;  // no multiple of the granularity

std::unique_ptr<SharedMemory> made(HandoffMemory& memory, int64_t bytes = kBytes) {
  Result<HandoffMemory::Created> created = memory.create(bytes);
  REQUIRE(created.ok());
  return std::move(created->memory);
}

}  // namespace

TEST_CASE("CUDA: two workers' movers hand pages over in GPU memory, by layer and whole") {
  if (!has_gpus(1)) return;
  constexpr int32_t kPages = 300;
  CudaEnd p({.transports = "mapped,tcp"}, kPages), d({.transports = "mapped,tcp"}, kPages);
  REQUIRE(p.pool.slabs().size() > 1);
  const MoverEvent attached = attach(p, d);
  INFO(attached.error);
  REQUIRE_EQ(attached.kind, MoverEvent::Kind::kAttached);

  StepInput step{.step = 1};
  std::vector<PushPage> whole;
  for (const int32_t page : {0, 1, 2, kPages - 1}) {
    p.fill(page);
    (page == 2 ? whole : step.pushes)
        .push_back({.transfer = 5, .group = 0, .src_page = page, .dst_page = kPages - 1 - page});
  }
  p.mover->begin(5, 1, 9);
  p.mover->push(whole);
  p.mover->layer_written(step, 0);
  p.mover->layer_written(step, 1);
  p.mover->finish(5, 1);
  CHECK_EQ(p.wait().kind, MoverEvent::Kind::kDone);
  for (const int32_t page : {0, 1, 2, kPages - 1}) CHECK(d.holds(kPages - 1 - page, page));
}

TEST_CASE("CUDA: copies reach memory imported by its descriptor, and are told of in order") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  Result<HandoffMemory::Created> theirs = memory->create(kBytes);
  REQUIRE(theirs.ok());
  const std::unique_ptr<SharedMemory> ours = made(*memory);
  Result<std::unique_ptr<SharedMemory>> imported = memory->import(theirs->key.fd.get(), kBytes);
  REQUIRE(imported.ok());
  CHECK_NE((*imported)->data(), theirs->memory->data());

  std::vector<uint8_t> want(kBytes);
  std::iota(want.begin(), want.end(), uint8_t{0});
  REQUIRE(memory->write(ours->data(), want.data(), kBytes).ok());
  PollLoop loop;
  int64_t done = 0;
  auto queue = memory->make_queue(loop, [&](int64_t copies) { done += copies; });
  constexpr int64_t kSlice = 64 << 10;
  for (int64_t at = 0; at < kBytes; at += kSlice) {
    REQUIRE(queue->has_room());
    CHECK_FALSE(queue->copy((*imported)->data() + at, ours->data() + at, kSlice, nullptr));
  }
  while (done < kBytes / kSlice) loop.poll(true);
  CHECK_EQ(done, kBytes / kSlice);
  std::vector<uint8_t> got(kBytes);
  REQUIRE(memory->read(got.data(), theirs->memory->data(), kBytes).ok());
  CHECK(got == want);
}

TEST_CASE("CUDA: memory with a fabric handle is imported by it") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  Result<HandoffMemory::Created> theirs = memory->create(kBytes);
  REQUIRE(theirs.ok());
  CHECK(theirs->key.fd.valid());
  if (!theirs->key.handle) {
    MESSAGE("the driver makes no fabric handles here: skipped");
    return;
  }
  theirs->key.fd.reset();
  Result<std::unique_ptr<SharedMemory>> imported = memory->import(theirs->key, kBytes);
  REQUIRE(imported.ok());
  const uint64_t want = 0x0123456789abcdef;
  REQUIRE(memory->write(theirs->memory->data(), &want, sizeof(want)).ok());
  uint64_t got = 0;
  REQUIRE(memory->read(&got, (*imported)->data(), sizeof(got)).ok());
  CHECK_EQ(got, want);
}

TEST_CASE("CUDA: a copy waits for its event, also for one that is recorded again") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  const std::unique_ptr<SharedMemory> ours = made(*memory);
  std::byte* const base = ours->data();
  PollLoop loop;
  int64_t done = 0;
  auto queue = memory->make_queue(loop, [&](int64_t copies) { done += copies; });
  std::binary_semaphore gate{0};
  CudaStream stream;
  CudaEvent event;
  for (uint64_t round = 1; round <= 3; ++round) {
    REQUIRE(memory->write(base, &round, sizeof(round)).ok());
    cuda_check(cudaLaunchHostFunc(
                   stream.get(),
                   [](void* wait) { static_cast<std::binary_semaphore*>(wait)->acquire(); }, &gate),
               "gate");
    event.record(stream.get());
    CHECK_FALSE(queue->copy(base + 4096, base, 64, event.get()));
    CHECK_FALSE(queue->copy(base + 8192, base, 64, event.get()));
    for (int32_t i = 0; i < 20; ++i) loop.poll(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    loop.poll(false);
    CHECK_EQ(done, static_cast<int64_t>(2 * (round - 1)));
    gate.release();
    while (done < static_cast<int64_t>(2 * round)) loop.poll(true);
    uint64_t got = 0;
    REQUIRE(memory->read(&got, base + 8192, sizeof(got)).ok());
    CHECK_EQ(got, round);
  }
}

TEST_CASE("CUDA: the push kernel moves what the copy engines move") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  const std::unique_ptr<SharedMemory> from = made(*memory);
  const std::unique_ptr<SharedMemory> to = made(*memory);
  std::vector<uint8_t> want(kBytes);
  for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<uint8_t>(i * 31 + i / 4096);
  REQUIRE(memory->write(from->data(), want.data(), kBytes).ok());
  // Sizes around the 64 KiB that a block moves at a time.
  PushSlices slices;
  int64_t at = 0;
  for (const int64_t bytes : {16, 65520, 65536, 65552, 1 << 20, 48, 3 << 20}) {
    slices.src[slices.count] = from->data() + at;
    slices.dst[slices.count] = to->data() + at;
    slices.units[slices.count++] = static_cast<uint32_t>(bytes / kPushAlignmentBytes);
    at += bytes;
  }
  CudaStream stream;
  push_slices(slices, 3, stream.get());
  stream.synchronize();
  std::vector<uint8_t> got(static_cast<size_t>(at));
  REQUIRE(memory->read(got.data(), to->data(), at).ok());
  CHECK(std::equal(got.begin(), got.end(), want.begin()));
}

TEST_CASE("CUDA: pages' digests are told by P, and a changed page is found at D") {
  if (!has_gpus(1)) return;
  constexpr int32_t kPages = 200;
  const KvTransferConfig config{.transports = "mapped", .digest = true};
  CudaEnd p(config, kPages), d(config, kPages);
  REQUIRE_EQ(attach(p, d).kind, MoverEvent::Kind::kAttached);
  StepInput step{.step = 1};
  std::vector<int32_t> landed;
  for (int32_t page = 0; page < kPages; ++page) {
    p.fill(page);
    landed.push_back(kPages - 1 - page);
    step.pushes.push_back({.transfer = 5, .group = 0, .src_page = page, .dst_page = landed.back()});
  }
  CudaStream stream;
  CudaEvent written;
  written.record(stream.get());
  const std::array<void*, 2> events = {written.get(), written.get()};
  p.mover->begin(5, 1, 9);
  CHECK(p.mover->layers_enqueued(step, events));
  p.mover->finish(5, 1);
  const MoverEvent done = p.wait();
  REQUIRE_EQ(done.kind, MoverEvent::Kind::kDone);
  REQUIRE(done.digest.has_value());
  d.mover->verify(1, {landed}, *done.digest);
  CHECK(d.wait().intact);
  std::byte last{};
  std::byte* const spoilt = d.pool.page(7) + d.pool.page_bytes() - 1;
  REQUIRE(d.memory->read(&last, spoilt, 1).ok());
  last ^= std::byte{0x80};
  REQUIRE(d.memory->write(spoilt, &last, 1).ok());
  d.mover->verify(2, {landed}, *done.digest);
  CHECK_FALSE(d.wait().intact);
}

TEST_CASE("CUDA: a bit that flips on the way from GPU to GPU memory is found by D's digest") {
  if (!has_gpus(1)) return;
  const KvTransferConfig config{.transports = "mapped", .digest = true};
  for (const double corrupt_share : {0.0, 1.0}) {
    CAPTURE(corrupt_share);
    const std::shared_ptr<HandoffMemory> memory = CudaEnd::opened(0);
    CudaEnd p(config, 8, 0, [&](std::unique_ptr<Transport> inner, PollLoop& loop) {
      const FaultPlan faults{.seed = 3, .corrupt_share = corrupt_share};
      return std::make_unique<FaultTransport>(std::move(inner), faults, &loop, memory.get());
    });
    CudaEnd d(config, 8);
    p.fill(0);
    p.fill(1);
    REQUIRE_EQ(attach(p, d).kind, MoverEvent::Kind::kAttached);
    p.mover->begin(5, 1, 9);
    p.mover->push({{.transfer = 5, .src_page = 0, .dst_page = 6},
                   {.transfer = 5, .src_page = 1, .dst_page = 2}});
    p.mover->finish(5, 0);
    const MoverEvent done = p.wait();
    REQUIRE_EQ(done.kind, MoverEvent::Kind::kDone);
    REQUIRE(done.digest.has_value());
    d.mover->verify(1, {{6, 2}}, *done.digest);
    CHECK_EQ(d.wait().intact, corrupt_share == 0);
  }
}

TEST_CASE("CUDA: a page's digest is the sums of its words, as documented") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  const std::unique_ptr<SharedMemory> page = made(*memory);
  std::vector<uint64_t> words(3 * 1024 + 2);
  WordSums want[2];
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = mix_word(i);
    add_word(words[i], i, &want[0]);
  }
  const auto bytes = static_cast<int64_t>(8 * words.size());
  REQUIRE(memory->write(page->data(), words.data(), bytes).ok());
  DigestPages pages{.page_bytes = bytes};
  pages.pages[pages.count++] = page->data();
  pages.pages[pages.count++] = page->data();
  want[1] = want[0];
  CudaStream stream;
  const DeviceBuffer sums(sizeof(want));
  cuda_check(cudaMemsetAsync(sums.data(), 0, sizeof(want), stream.get()), "zero");
  digest_pages(pages, sums.as<WordSums>(), stream.get());
  stream.synchronize();
  WordSums got[2];
  REQUIRE(memory->read(got, sums.data(), sizeof(got)).ok());
  for (int32_t i = 0; i < 2; ++i) {
    CHECK_EQ(got[i].low, want[i].low);
    CHECK_EQ(got[i].high, want[i].high);
  }
}

TEST_CASE("CUDA: a queue that is destroyed has ended its copies") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  const std::unique_ptr<SharedMemory> from = made(*memory, 256 << 20);
  const std::unique_ptr<SharedMemory> to = made(*memory, 256 << 20);
  const uint64_t want = 0x0123456789abcdef;
  std::byte* const last = from->data() + (256 << 20) - 8;
  REQUIRE(memory->write(last, &want, 8).ok());
  PollLoop loop;
  auto queue = memory->make_queue(loop, [](int64_t) { FAIL("told after its end"); });
  queue->copy(to->data(), from->data(), 256 << 20, nullptr);
  loop.poll(false);
  queue.reset();
  uint64_t got = 0;
  REQUIRE(memory->read(&got, to->data() + (256 << 20) - 8, 8).ok());
  CHECK_EQ(got, want);
  loop.poll(false);
}

TEST_CASE("CUDA: descriptors that are no GPU memory are refused, the measurement is sane") {
  if (!has_gpus(1)) return;
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  CHECK_FALSE(memory->import(ends[0], 4096).ok());
  close(ends[0]);
  close(ends[1]);
  const std::unique_ptr<SharedMemory> scratch = made(*memory, kProbeSliceBytes * kProbeSlices);
  PollLoop loop;
  auto queue = memory->make_queue(loop, [](int64_t) {});
  const Result<Measurement> measured = queue->measure(scratch->data());
  REQUIRE(measured.ok());
  CHECK_GT(measured->gbps, 1);
  CHECK_LT(measured->latency_us, 1000);
  MESSAGE("on one GPU: " << measured->gbps << " GB/s, " << measured->latency_us << " us");
}

}  // namespace baton
