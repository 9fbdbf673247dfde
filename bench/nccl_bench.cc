// Transport "nccl" against plain NCCL: GB/s from GPU 0 to GPU 1 of another process, pages of an 8B
// model (8 MiB, 32 layers of 256 KiB), whole and by layer, by the multiprocessors that NCCL may
// take. "Raw": ncclSend and ncclRecv in groups as large, back to back on one stream, in the same
// run.
//
//   nccl_bench        wants libnccl.so.2 and two GPUs
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "bench/kv_group_8b.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/nccl_library.h"
#include "kvtransfer/page_mover.h"
#include "kvtransfer/probe.h"
#include "model/vmm_slabs.h"

namespace baton {
namespace {

constexpr int32_t kPages = 128;
constexpr int32_t kLayers = 32;
constexpr int64_t kPageBytes = 8 << 20;
constexpr int64_t kBytes = kPages * kPageBytes;
constexpr int64_t kGroupBytes = 64 << 20;
constexpr int32_t kRounds = 7;
constexpr int32_t kCtas[] = {4, 8, 16, 32};

// The other process, and which of the two this is.
struct Side {
  int socket = -1;
  bool sends = false;

  void tell(const std::string& message) const {
    if (send(socket, message.data(), message.size(), MSG_NOSIGNAL) < 0)
      throw ConfigError("the other process is gone");
  }
  std::string hear() const {
    std::vector<char> message(64 << 10);
    const ssize_t got = recv(socket, message.data(), message.size(), 0);
    if (got <= 0) throw ConfigError("the other process is gone");
    return {message.data(), static_cast<size_t>(got)};
  }
  void meet() const {
    tell("here");
    (void)hear();
  }
};

void nccl_check(const NcclFunctions& nccl, int result) {
  if (result != kNcclSuccess) throw ConfigError(nccl.get_error_string(result));
}

class RawPair {
 public:
  RawPair(const NcclFunctions& nccl, const Side& side, int ctas)
      : nccl_(nccl), side_(side), buffer_(kBytes) {
    NcclUniqueId id{};
    if (side.sends) {
      nccl_check(nccl_, nccl_.get_unique_id(&id));
      side.tell({id.internal, sizeof(id.internal)});
    } else {
      const std::string heard = side.hear();
      std::memcpy(id.internal, heard.data(), std::min(heard.size(), sizeof(id.internal)));
    }
    NcclConfig config{.max_ctas = ctas};
    nccl_check(nccl_, nccl_.comm_init_rank_config(&comm_, 2, id, side.sends ? 0 : 1, &config));
  }
  RawPair(const RawPair&) = delete;
  RawPair& operator=(const RawPair&) = delete;
  ~RawPair() { (void)nccl_.comm_abort(comm_); }

  double gbps(int64_t slice_bytes) {
    double best = 0;
    for (int32_t round = 0; round <= kRounds; ++round) {
      side_.meet();
      const Stopwatch stopwatch;
      for (int64_t at = 0; at < kBytes; at += kGroupBytes) enqueue(at, slice_bytes);
      stream_.synchronize();
      if (round > 0) best = std::max(best, gbps_of(kBytes, stopwatch.elapsed_us()));
    }
    return best;
  }

 private:
  // The receiver's slices lie in reversed order.
  void enqueue(int64_t first, int64_t slice_bytes) {
    nccl_check(nccl_, nccl_.group_start());
    const auto count = static_cast<size_t>(slice_bytes);
    for (int64_t at = first; at < first + kGroupBytes; at += slice_bytes) {
      const int result =
          side_.sends ? nccl_.send(buffer_.data() + at, count, kNcclInt8, 1, comm_, stream_.get())
                      : nccl_.recv(buffer_.data() + kBytes - slice_bytes - at, count, kNcclInt8, 0,
                                   comm_, stream_.get());
      nccl_check(nccl_, result);
    }
    nccl_check(nccl_, nccl_.group_end());
  }

  const NcclFunctions& nccl_;
  const Side& side_;
  const DeviceBuffer buffer_;
  CudaStream stream_;
  void* comm_ = nullptr;
};

// A worker's side of the handoff.
class Handoff {
 public:
  Handoff(const Side& side, int32_t device, int32_t ctas)
      : side_(side),
        layout_{{kv_group_8b()}},
        pool_(layout_.groups[0], kPages, 256 << 20, vmm_slab_memory(device)),
        mover_(make_page_mover(
            {.require = "nccl", .attach_timeout_ms = 10'000, .nccl_ctas = ctas}, layout_, {&pool_},
            "127.0.0.1", clock_,
            [this](MoverEvent event) { (void)events_.try_push(std::move(event)); }, nullptr,
            make_cuda_handoff_memory(device))) {
    for (int32_t page = 0; page < kPages; ++page)
      step_.pushes.push_back({.group = 0, .src_page = page, .dst_page = kPages - 1 - page});
  }

  void receive() {
    std::vector<std::vector<int32_t>> pages(1);
    for (int32_t page = 0; page < kPages; ++page) pages[0].push_back(page);
    mover_->allow(1, 1, pages);
    side_.tell(mover_->offer(1));
    (void)side_.hear();
  }

  void send(int32_t ctas, const double* raw) {
    const int64_t free_before = free_bytes();
    const Stopwatch attaching;
    mover_->attach(1, side_.hear(), std::make_shared<std::atomic<int64_t>>(INT64_MAX));
    const MoverEvent attached = *events_.pop();
    if (attached.kind != MoverEvent::Kind::kAttached) throw ConfigError(attached.error);
    const double attach_ms = attaching.elapsed_us() / 1e3;
    const double pair_mib = static_cast<double>(free_before - free_bytes()) / (1 << 20);
    double pages = 0, layers = 0;
    for (int32_t round = 0; round <= kRounds; ++round) {
      pages = std::max(pages, push(false));
      layers = std::max(layers, push(true));
    }
    std::printf("%6d %9.0f %9.0f %6.1f %% %9.0f %9.0f %6.1f %% %10.1f %9.0f %8.0f\n", ctas, raw[0],
                pages, 100 * (pages / raw[0] - 1), raw[1], layers, 100 * (layers / raw[1] - 1),
                attached.latency_us, attach_ms, pair_mib);
    std::fflush(stdout);
    side_.tell("done");
  }

 private:
  static int64_t free_bytes() {
    size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "memory");
    return static_cast<int64_t>(free);
  }
  double push(bool by_layer) {
    const TransferId transfer = ++transfers_;
    for (PushPage& page : step_.pushes) page.transfer = transfer;
    const Stopwatch stopwatch;
    mover_->begin(transfer, 1, 1);
    if (by_layer) {
      ++step_.step;
      written_.record(stream_.get());
      (void)mover_->layers_enqueued(step_, std::vector<void*>(kLayers, written_.get()));
    } else {
      mover_->push(step_.pushes);
    }
    mover_->finish(transfer, by_layer ? step_.step : 0);
    const MoverEvent done = *events_.pop();
    if (done.kind != MoverEvent::Kind::kDone) throw ConfigError(done.error);
    return gbps_of(kBytes, stopwatch.elapsed_us());
  }

  const Side& side_;
  const SystemClock clock_;
  const KvLayout layout_;
  PagePool pool_;
  BoundedQueue<MoverEvent> events_{64};
  CudaStream stream_;
  CudaEvent written_;
  StepInput step_;
  TransferId transfers_ = 0;
  std::unique_ptr<PageMover> mover_;
};

void measure(const Side& side) {
  const int32_t device = side.sends ? 0 : 1;
  open_cuda_device(device);
  const Result<NcclFunctions> nccl = load_nccl_functions();
  if (!nccl.ok()) throw ConfigError(nccl.status().message());
  if (side.sends) {
    std::printf("%6s %9s %9s %8s %9s %9s %8s %10s %9s %8s\n", "CTAs", "raw 8M", "pages", "",
                "raw 256K", "layers", "", "latency us", "attach ms", "pair MiB");
  }
  {
    RawPair pair(*nccl, side, INT_MIN);
    const double pages = pair.gbps(kPageBytes), layers = pair.gbps(kPageBytes / kLayers);
    if (side.sends) std::printf("%6s %9.0f %28.0f\n", "NCCL's", pages, layers);
  }
  for (const int32_t ctas : kCtas) {
    double raw[2] = {};
    {
      RawPair pair(*nccl, side, ctas);
      raw[0] = pair.gbps(kPageBytes);
      raw[1] = pair.gbps(kPageBytes / kLayers);
    }
    Handoff handoff(side, device, ctas);
    side.sends ? handoff.send(ctas, raw) : handoff.receive();
  }
}

// Both processes; false: this one has failed.
bool measure_or_say(const Side& side) {
  try {
    measure(side);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_bench, %s: %s\n", side.sends ? "sender" : "receiver", error.what());
    return false;
  }
}

int run() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  // Before this process touches CUDA: a context does not survive a fork.
  const pid_t child = fork();
  const int mine = ends[child == 0 ? 1 : 0];
  close(ends[child == 0 ? 0 : 1]);
  const bool able = cuda_device_count() >= 2;
  if (child == 0) _exit(!able || measure_or_say({mine, false}) ? 0 : 1);
  if (!able) std::printf("fewer than two GPUs here: nothing to measure\n");
  const bool well = !able || measure_or_say({mine, true});
  close(mine);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0 && well ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main() {
  return baton::run();
}
