// What transport "ucx" reaches with GPU memory, by slice size: through the transport itself, events
// and sleeps included, from one process to another.
//
//   transfer_ucx_bench [LIBUCP]     from GPU 0 to GPU 1; to GPU 0 itself where there is one
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "bench/kv_group_8b.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/error.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/ucx_put.h"
#include "model/plain_slabs.h"

namespace baton {
namespace {

constexpr int32_t kPages = 128;  // of 8 MiB
constexpr LinkId kLink = 1;
constexpr int32_t kRounds = 3;

double thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// One process's end, all in its main thread.
struct End {
  End(int32_t device, const std::string& library)
      : pool(kv_group_8b(), kPages, kOneSlab, plain_slab_memory(device)),
        pools{&pool},
        memory(make_cuda_handoff_memory(device)),
        credentials(LinkConfig{}) {
    Result<std::unique_ptr<UcxPutTransport>> made =
        UcxPutTransport::make({loop, pools, offers, grants, *memory, credentials, "", 10'000,
                               [](MoverEvent) {}, library});
    if (!made.ok()) throw ConfigError(made.status().message());
    transport = std::move(*made);
  }
  PollLoop loop;
  PagePool pool;
  const std::vector<PagePool*> pools;
  OfferBook offers;
  GrantBoard grants;
  std::unique_ptr<HandoffMemory> memory;
  CredentialFiles credentials;
  std::unique_ptr<UcxPutTransport> transport;
};

[[noreturn]] void own_pages(int socket, int32_t device, const std::string& library) {
  try {
    open_cuda_device(device);
    End end(device, library);
    Offer offer{.keys = end.offers.add(kLink), .pools = geometry_of(end.pools), .endpoints = {}};
    offer.endpoints.push_back({"ucx", end.transport->endpoint()});
    const std::string blob = encode_offer(offer);
    if (send(socket, blob.data(), blob.size(), 0) < 0) _exit(1);
    bool over = false;
    const PollLoop::Watch watch = end.loop.watch(socket, 1, [&](uint32_t) { over = true; });
    while (!over) end.loop.poll(true);
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the peer: %s\n", error.what());
    _exit(1);
  }
}

class Bench final : public RouteOwner {
 public:
  Bench(End& end, const Offer& offer) : end_(end) {
    Result<std::unique_ptr<Route>> route =
        end.transport->connect(kLink, offer, offer.endpoints[0].address, *this);
    if (!route.ok()) throw ConfigError(route.status().message());
    route_ = std::move(*route);
    while (!ready_) turn();
  }
  void route_ready(LinkId, const Measurement& measurement) override {
    ready_ = true;
    std::printf("at connect, slices of 256 KiB: %.0f GB/s, %.1f us\n", measurement.gbps,
                measurement.latency_us);
  }
  void slice_done(LinkId, TransferId) override { ++done_; }
  void slice_refused(LinkId, TransferId, const std::string&) override {}
  void route_broken(LinkId, const Status& reason) override { broken_ = reason.message(); }

  // `count` slices of the first pages, into D's pages in reversed order; microseconds until D has
  // all of them.
  double push_us(int64_t slice_bytes, int64_t count) {
    const int64_t a_page = end_.pool.page_bytes() / slice_bytes;
    done_ = 0;
    const Stopwatch stopwatch;
    for (int64_t i = 0; done_ < count; turn()) {
      for (; i < count && route_->has_room(); ++i) {
        const auto page = static_cast<int32_t>(i / a_page);
        const int64_t offset = i % a_page * slice_bytes;
        route_->start({.dst_page = kPages - 1 - page,
                       .offset = offset,
                       .bytes = slice_bytes,
                       .src = end_.pool.page(page) + offset});
      }
    }
    return stopwatch.elapsed_us();
  }

 private:
  void turn() {
    end_.loop.poll(true);
    if (!broken_.empty()) throw ConfigError(broken_);
  }

  End& end_;
  std::unique_ptr<Route> route_;
  bool ready_ = false;
  int64_t done_ = 0;
  std::string broken_;
};

int run(const std::string& library) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  // Before this process touches CUDA: a context does not survive a fork.
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const int32_t gpus = cuda_device_count();
    if (gpus == 0) _exit(0);
    own_pages(ends[1], gpus > 1 ? 1 : 0, library);
  }
  close(ends[1]);
  const ScopedFd socket(ends[0]);
  std::vector<char> blob(64 << 10);
  const ssize_t bytes = recv(socket.get(), blob.data(), blob.size(), 0);
  if (bytes <= 0) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status == 0) std::printf("no GPU here: nothing to measure\n");
    return status == 0 ? 0 : 1;
  }
  const CudaDevice device = open_cuda_device(0);
  const Result<Offer> offer = decode_offer(std::string(blob.data(), static_cast<size_t>(bytes)));
  if (!offer.ok()) throw ConfigError(offer.status().message());
  End end(0, library);
  std::printf("%s, UCX from GPU 0 to GPU %d of another process\n", device.name.c_str(),
              cuda_device_count() > 1 ? 1 : 0);
  Bench bench(end, *offer);
  std::printf("slice KiB   GB/s of 1 GiB   one us   four us   thread busy\n");
  for (const int64_t kib : {64, 256, 1024, 8192}) {
    const int64_t slice = kib << 10;
    const int64_t count = kPages * end.pool.page_bytes() / slice;
    double best_us = 1e12, busy = 0, one_us = 1e12, four_us = 1e12;
    for (int32_t round = 0; round < kRounds; ++round) {
      const double cpu_us = thread_cpu_us();
      const double us = bench.push_us(slice, count);
      if (us < best_us) busy = (thread_cpu_us() - cpu_us) / us;
      best_us = std::min(best_us, us);
      for (int32_t i = 0; i < 20; ++i) {
        one_us = std::min(one_us, bench.push_us(slice, 1));
        four_us = std::min(four_us, bench.push_us(slice, 4));
      }
    }
    std::printf("%9ld %15.0f %8.1f %9.1f %11.0f %%\n", kib, gbps_of(slice * count, best_us), one_us,
                four_us, 100 * busy);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  try {
    return baton::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transfer_ucx_bench: %s\n", error.what());
    return 1;
  }
}
