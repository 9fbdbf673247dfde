// Transport "ucx" over GPU memory, between two processes: UCX's cuda_ipc reaches no memory of its
// own process. A program of its own, so that it can fork before anything touches CUDA.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "base/bounded_queue.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/page_mover.h"
#include "model/plain_slabs.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int32_t kPages = 64;
constexpr LinkId kLink = 1;

// A page of 8 MiB, a layer's slice of 256 KiB.
KvLayout layout_of_8b() {
  KvGroup group{.num_kv_heads = 8, .head_dim = 128, .page_tokens = 64, .dtype = Dtype::kBF16};
  for (int32_t layer = 0; layer < 32; ++layer) group.layers.push_back(layer);
  return {{group}};
}

// Which UCX the test is to load; the loader's where nobody says so.
std::string ucx_library() {
  const char* path = std::getenv("BATON_TEST_UCX_LIBRARY");
  return path == nullptr ? "" : path;
}

struct GpuEnd {
  GpuEnd(int32_t device, const Clock& clock)
      : layout(layout_of_8b()),
        pool(layout.groups[0], kPages, kOneSlab, plain_slab_memory(device)),
        memory(make_cuda_handoff_memory(device)),
        mover(make_page_mover(
            {.transports = "ucx", .require = "ucx", .ucx_library = ucx_library()}, layout, {&pool},
            "127.0.0.1", clock,
            [this](MoverEvent event) { (void)events.try_push(std::move(event)); }, nullptr,
            memory)) {}
  MoverEvent wait() { return *events.pop(); }

  KvLayout layout;
  PagePool pool;
  std::shared_ptr<HandoffMemory> memory;
  BoundedQueue<MoverEvent> events{64};
  std::unique_ptr<PageMover> mover;
};

// D: once P is there, tells its offer, then the first and last words of each page that it is asked
// for.
[[noreturn]] void serve_pages(int socket) {
  try {
    char go = 0;
    if (recv(socket, &go, 1, 0) != 1) _exit(0);
    const int32_t gpus = cuda_device_count();
    const int32_t device = gpus > 1 ? 1 : 0;
    open_cuda_device(device);
    SystemClock clock;
    GpuEnd d(device, clock);
    const std::string offer = d.mover->offer(kLink);
    if (send(socket, offer.data(), offer.size(), 0) < 0) _exit(1);
    for (int32_t page = 0; recv(socket, &page, sizeof(page), 0) == sizeof(page);) {
      uint64_t ends[2] = {};
      std::byte* const at = d.pool.page(page);
      if (!d.memory->read(&ends[0], at, 8).ok() ||
          !d.memory->read(&ends[1], at + d.pool.page_bytes() - 8, 8).ok() ||
          send(socket, ends, sizeof(ends), 0) < 0)
        _exit(1);
    }
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "D: %s\n", error.what());
    _exit(2);
  }
}

uint64_t word_of(int32_t page, int32_t end) {
  return uint64_t{0x9e3779b97f4a7c15} * static_cast<uint64_t>(2 * page + end + 1);
}

int64_t free_bytes() {
  int64_t sum = 0;
  for (int32_t device = 0; device < cuda_device_count(); ++device) {
    size_t free = 0, total = 0;
    cuda_check(cudaSetDevice(device), "device");
    cuda_check(cudaMemGetInfo(&free, &total), "free memory");
    sum += static_cast<int64_t>(free);
  }
  cuda_check(cudaSetDevice(0), "device");
  return sum;
}

// D in mid-push: all ends, and nothing of its memory stays.
void kill_in_mid_push(GpuEnd& p, pid_t d, const std::vector<PushPage>& pages,
                      int64_t free_without_d) {
  p.mover->begin(6, kLink, 10);
  for (int32_t round = 0; round < 8; ++round) {
    std::vector<PushPage> again = pages;
    for (PushPage& page : again) page.transfer = 6;
    p.mover->push(again);
  }
  kill(d, SIGKILL);
  REQUIRE_EQ(waitpid(d, nullptr, 0), d);
  p.mover->abort(6);
  p.mover->detach(kLink);
  for (MoverEvent event = p.wait(); event.kind != MoverEvent::Kind::kDetached; event = p.wait()) {
    CHECK((event.transfer == 6 || event.kind == MoverEvent::Kind::kAttachFailed));
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const int64_t want = free_without_d - kPages * p.pool.page_bytes() / 4;
  while (free_bytes() < want && std::chrono::steady_clock::now() < limit) usleep(10'000);
  CHECK_GE(free_bytes(), want);
}

}  // namespace

TEST_CASE("CUDA: UCX puts pages and layers' slices into another process, and survives its death") {
  int ends[2];
  REQUIRE_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    serve_pages(ends[1]);
  }
  close(ends[1]);
  const ScopedFd socket(ends[0]);
  if (cuda_device_count() == 0) {
    MESSAGE("no GPU here: skipped");
    return;
  }
  open_cuda_device(0);
  SystemClock clock;
  std::unique_ptr<GpuEnd> end;
  try {
    end = std::make_unique<GpuEnd>(0, clock);
  } catch (const ConfigError& error) {
    MESSAGE("no UCX that knows GPUs: skipped: " << error.what());
    return;
  }
  GpuEnd& p = *end;
  const int64_t free_without_d = free_bytes();
  REQUIRE_EQ(send(socket.get(), "g", 1, 0), 1);
  std::vector<char> offer(64 << 10);
  const ssize_t offered = recv(socket.get(), offer.data(), offer.size(), 0);
  REQUIRE_GT(offered, 0);
  const auto lease = std::make_shared<std::atomic<int64_t>>(INT64_MAX);
  p.mover->attach(kLink, std::string(offer.data(), static_cast<size_t>(offered)), lease);
  const MoverEvent attached = p.wait();
  INFO(attached.error);
  REQUIRE_EQ(attached.kind, MoverEvent::Kind::kAttached);
  MESSAGE("256 KiB slices: " << attached.gbps << " GB/s, " << attached.latency_us << " us");

  // Half as a step's layers, behind an event; half as complete pages.
  StepInput step{.step = 1};
  std::vector<PushPage> complete;
  for (int32_t page = 0; page < kPages; ++page) {
    for (int32_t end = 0; end < 2; ++end) {
      const uint64_t word = word_of(page, end);
      REQUIRE(
          p.memory->write(p.pool.page(page) + end * (p.pool.page_bytes() - 8), &word, sizeof(word))
              .ok());
    }
    (page % 2 == 0 ? complete : step.pushes)
        .push_back({.transfer = 5, .group = 0, .src_page = page, .dst_page = kPages - 1 - page});
  }
  CudaStream stream;
  CudaEvent written;
  written.record(stream.get());
  const std::vector<void*> events(32, written.get());
  p.mover->begin(5, kLink, 9);
  p.mover->push(complete);
  CHECK(p.mover->layers_enqueued(step, events));
  p.mover->finish(5, 1);
  const MoverEvent done = p.wait();
  CHECK_EQ(done.error, "");
  CHECK_EQ(done.kind, MoverEvent::Kind::kDone);
  for (int32_t page = 0; page < kPages; ++page) {
    uint64_t got[2] = {};
    const int32_t at_d = kPages - 1 - page;
    REQUIRE_EQ(send(socket.get(), &at_d, sizeof(at_d), 0), sizeof(at_d));
    REQUIRE_EQ(recv(socket.get(), got, sizeof(got), 0), sizeof(got));
    CHECK_EQ(got[0], word_of(page, 0));
    CHECK_EQ(got[1], word_of(page, 1));
  }
  kill_in_mid_push(p, child, complete, free_without_d);
}

}  // namespace baton
