// What the ways to push pages reach, through memory that another process owns and that is imported
// by its descriptor, as in a handoff: copy engines by slice size on an idle GPU and beside GEMMs,
// the push kernel by multiprocessors, short pushes in microseconds, what GEMMs lose meanwhile and
// at which clock, and what a digest of pages costs.
//
//   transfer_cuda_bench        from GPU 0 to GPU 1; to GPU 0 itself where there is one
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/graph_timing.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/linear/linear_cuda.h"
#include "kvtransfer/handoff_memory.h"
#include "kvtransfer/page_digest.h"
#include "kvtransfer/probe.h"
#include "kvtransfer/push_kernel.h"
#include "kvtransfer/unix_socket.h"

namespace baton {
namespace {

constexpr int64_t kPoolBytes = int64_t{1} << 30;
constexpr int32_t kSlicesMax = 4096;
constexpr int32_t kBatch = 512;
constexpr int32_t kGemms = 20;
constexpr int64_t kGemmTokens = 8192, kGemmRows = 28672, kGemmCols = 4096;
constexpr int32_t kRounds = 3;
constexpr int32_t kGemmRounds = 15;
constexpr int32_t kGemmsForClocks = 1200;  // some seconds
constexpr int64_t kPageBytes = 8 << 20;
constexpr int64_t kLayerSlice = 256 << 10;
constexpr int32_t kLayerSlices = 128;  // of 8192 tokens
constexpr int32_t kWithoutEnd = -1;
// NVLink sleeps after 50 ms without traffic (nvidia-smi nvlink -gLowPwrInfo).
constexpr std::chrono::milliseconds kLinksAsleep{100};

std::string clocks_now() {
  const char* query =
      "nvidia-smi -i 0 --query-gpu=clocks.sm,power.draw,clocks_event_reasons.active "
      "--format=csv,noheader";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(query, "r"), pclose);
  char line[200] = "nvidia-smi cannot be asked";
  if (pipe == nullptr || std::fgets(line, sizeof(line), pipe.get()) == nullptr) return line;
  return std::string(line).substr(0, std::string(line).find('\n'));
}

// The peer: owns the memory until the socket closes.
[[noreturn]] void own_memory(int socket, int32_t device) {
  open_cuda_device(device);
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(device);
  const Result<HandoffMemory::Created> pool = memory->create(kPoolBytes);
  if (!pool.ok() || !send_message(socket, "pool", {pool->key.fd.get()}).ok()) _exit(1);
  char end = 0;
  while (read(socket, &end, 1) > 0) {
  }
  _exit(0);
}

// What is enqueued behind it starts when it opens: what the host takes to enqueue is left out.
class Gate {
 public:
  void close() {
    while (open_.try_acquire()) {  // opened too late, the last time
    }
    cuda_check(cudaLaunchHostFunc(stream_.get(), &wait, this), "gate");
    opened_.record(stream_.get());
  }
  void hold(cudaStream_t stream) { cuda_check(cudaStreamWaitEvent(stream, opened_.get()), "gate"); }
  void open() { open_.release(); }

 private:
  // Not for ever: the driver may have no room for all that is enqueued behind it.
  static void CUDART_CB wait(void* self) {
    (void)static_cast<Gate*>(self)->open_.try_acquire_for(std::chrono::milliseconds(200));
  }
  std::binary_semaphore open_{0};
  CudaStream stream_;
  CudaEvent opened_;
};

// A stream of work whose time the GPU takes.
struct Timed {
  CudaStream stream;
  CudaEvent begin{true}, end{true};
  double ms() {
    end.synchronize();
    float elapsed = 0;
    cuda_check(cudaEventElapsedTime(&elapsed, begin.get(), end.get()), "elapsed");
    return elapsed;
  }
};

class Bench {
 public:
  Bench(const CudaDevice& device, std::byte* target)
      : target_(target),
        source_(kPoolBytes),
        linear_(device, {}),
        weight_(kGemmRows, kGemmCols, MatrixInput::kNormed,
                std::make_shared<const DeviceBuffer>(random_elems(kGemmRows * kGemmCols))),
        x_(random_elems(kGemmTokens * kGemmCols)),
        y_(2 * kGemmTokens * kGemmRows) {
    gemms(1);
    cuda_check(cudaDeviceSynchronize(), "warm up");
  }

  void print_engines() {
    std::printf("copy engines   slice KiB   idle GB/s   beside GEMMs GB/s   host us a slice\n");
    for (const int64_t kib : {16, 64, 256, 1024, 8192}) {
      double idle = 0, busy = 0;
      for (int32_t round = 0; round < kRounds; ++round) {
        idle = std::max(idle, push_gated(kib << 10, 0));
        busy = std::max(busy, push_gated(kib << 10, 4));
      }
      std::printf("%24ld %11.0f %19.0f %17.2f\n", kib, idle, busy, host_us_);
      std::fflush(stdout);
    }
  }

  // Pushes beside GEMMs: so many slices of 256 KiB behind each, as a prefill pushes a layer's
  // pages. Each run, and one alone right before it, begins on a GPU that has rested as long and
  // whose links sleep: clocks fall under load, and links that are awake take power from a GPU at
  // its limit.
  void print_gemms() {
    gemm_ms(0, kGemmsForClocks / 2, nullptr);
    struct Way {
      const char* name;
      int32_t slices;
      double gbps = 0;
      std::vector<double> shares, alone_ms;
    } ways[] = {{"nothing (control)", 0},
                {"1 MiB a GEMM (links awake)", 4},
                {"32 MiB a GEMM", kLayerSlices},
                {"without end", kWithoutEnd}};
    for (int32_t round = 0; round < kGemmRounds; ++round) {
      for (Way& way : ways) {
        std::this_thread::sleep_for(kLinksAsleep);
        way.alone_ms.push_back(gemm_ms(0, kGemms, nullptr));
        std::this_thread::sleep_for(kLinksAsleep);
        way.shares.push_back(gemm_ms(way.slices, kGemms, &way.gbps) / way.alone_ms.back());
      }
    }
    for (const Way& way : ways) {
      std::printf("%d GEMMs of %.2f ms beside %-26s %+.2f %%, %.0f GB/s\n", kGemms,
                  median(way.alone_ms) / kGemms, way.name, 100 * (median(way.shares) - 1),
                  way.gbps);
    }
    for (const int32_t slices : {0, kWithoutEnd}) {
      std::future<std::string> clocks = std::async(std::launch::async, [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        return clocks_now();
      });
      const double ms = gemm_ms(slices, kGemmsForClocks, nullptr);
      std::printf("%d GEMMs %s: %.3f ms each; SM clock, power, limits: %s\n", kGemmsForClocks,
                  slices == 0 ? "alone" : "beside pushes", ms / kGemmsForClocks,
                  clocks.get().c_str());
    }
    std::fflush(stdout);
  }

  void print_digest() {
    const DeviceBuffer sums(kDigestPagesMax * sizeof(WordSums));
    std::printf("digest of pages of 8 MiB:");
    for (const int32_t count : {1, 8, 32, kDigestPagesMax}) {
      DigestPages pages{.count = count, .page_bytes = kPageBytes};
      for (int32_t i = 0; i < count; ++i) pages.pages[i] = source_.data() + i * kPageBytes;
      double us = 1e9;
      for (int32_t round = 0; round < 3 * kRounds; ++round) {
        copy_.begin.record(copy_.stream.get());
        digest_pages(pages, sums.as<WordSums>(), copy_.stream.get());
        copy_.end.record(copy_.stream.get());
        us = std::min(us, copy_.ms() * 1e3);
      }
      std::printf("  %d: %.0f us, %.0f GB/s", count, us, gbps_of(count * kPageBytes, us));
    }
    std::printf("\n");
  }

  void print_kernel() {
    std::printf("push kernel, idle, GB/s    SMs    64 KiB   256 KiB\n");
    for (const int32_t sms : {4, 8, 16, 32, 64, 132}) {
      double gbps[2] = {};
      for (int32_t round = 0; round < kRounds; ++round) {
        gbps[0] = std::max(gbps[0], kernel_gbps(64 << 10, kSlicesMax, sms));
        gbps[1] = std::max(gbps[1], kernel_gbps(256 << 10, kSlicesMax, sms));
      }
      std::printf("%30d %9.0f %9.0f\n", sms, gbps[0], gbps[1]);
      std::fflush(stdout);
    }
  }

  void print_short() {
    std::printf("slices of 256 KiB, us   engines   kernel on 16   on 64\n");
    for (const int32_t count : {1, 4, 16, 64}) {
      double us[3] = {1e9, 1e9, 1e9};
      for (int32_t round = 0; round < 3 * kRounds; ++round) {
        us[0] = std::min(us[0], gated_us(256 << 10, count, 0));
        us[1] = std::min(us[1], kernel_us(256 << 10, count, 16));
        us[2] = std::min(us[2], kernel_us(256 << 10, count, 64));
      }
      std::printf("%17d %13.1f %14.1f %7.1f\n", count, us[0], us[1], us[2]);
      std::fflush(stdout);
    }
  }

 private:
  // Zeros would spare the GPU power, and GEMMs are as fast as its power lets them be.
  static DeviceBuffer random_elems(int64_t count) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    uint32_t state = 1;
    for (uint16_t& value : values) {
      state = state * 1664525 + 1013904223;
      value = static_cast<uint16_t>(0x3c00 + (state >> 24) + (state >> 16 & 0x8000));
    }
    DeviceBuffer buffer(2 * count);
    cuda_check(cudaMemcpy(buffer.data(), values.data(), static_cast<size_t>(2 * count),
                          cudaMemcpyHostToDevice),
               "random values");
    return buffer;
  }
  static int32_t slices_of(int64_t slice_bytes) {
    return static_cast<int32_t>(std::min<int64_t>(kSlicesMax, kPoolBytes / slice_bytes));
  }
  // Slices lie in the target in reversed order: no two of them can be copied as one.
  std::byte* target(int64_t slice_bytes, int32_t count, int32_t i) const {
    return target_ + (count - 1 - i) * slice_bytes;
  }

  void gemms(int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      linear_.linear({.weight = &weight_,
                      .x = x_.as<F16>(),
                      .y = y_.as<F16>(),
                      .num_tokens = static_cast<int32_t>(kGemmTokens)},
                     compute_.stream.get());
    }
  }

  void enqueue(int64_t slice_bytes, int32_t count) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    for (int32_t first = 0; first < count; first += kBatch) {
      std::vector<void*> dsts;
      std::vector<const void*> srcs;
      for (int32_t i = first; i < std::min(count, first + kBatch); ++i) {
        dsts.push_back(target(slice_bytes, count, i));
        srcs.push_back(source_.data() + i * slice_bytes);
      }
      const std::vector<size_t> sizes(dsts.size(), static_cast<size_t>(slice_bytes));
      size_t all = 0;
      cuda_check(cudaMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), sizes.size(),
                                      &attributes, &all, 1, copy_.stream.get()),
                 "push slices");
    }
  }

  double gated_us(int64_t slice_bytes, int32_t count, int32_t gemm_count) {
    gate_.close();
    gate_.hold(compute_.stream.get());
    gate_.hold(copy_.stream.get());
    gemms(gemm_count);
    copy_.begin.record(copy_.stream.get());
    const Stopwatch stopwatch;
    enqueue(slice_bytes, count);
    host_us_ = stopwatch.elapsed_us() / count;
    copy_.end.record(copy_.stream.get());
    gate_.open();
    const double us = copy_.ms() * 1e3;
    compute_.stream.synchronize();
    return us;
  }
  double push_gated(int64_t slice_bytes, int32_t gemm_count) {
    const int32_t count = slices_of(slice_bytes);
    return gbps_of(slice_bytes * count, gated_us(slice_bytes, count, gemm_count));
  }

  double gemm_ms(int32_t slices_a_gemm, int32_t gemm_count, double* pushed_gbps) {
    const bool without_end = slices_a_gemm == kWithoutEnd;
    gate_.close();
    gate_.hold(compute_.stream.get());
    gate_.hold(copy_.stream.get());
    compute_.begin.record(compute_.stream.get());
    copy_.begin.record(copy_.stream.get());
    int64_t slices = 0;
    for (int32_t i = 0; i < gemm_count; ++i) {
      gemms(1);
      if (without_end || slices_a_gemm == 0) continue;
      layer_.record(compute_.stream.get());
      cuda_check(cudaStreamWaitEvent(copy_.stream.get(), layer_.get()), "wait for a layer");
      enqueue(kLayerSlice, slices_a_gemm);
      slices += slices_a_gemm;
    }
    compute_.end.record(compute_.stream.get());
    if (!without_end) gate_.open();
    for (bool opened = false; without_end && !compute_.end.done(); opened = true) {
      enqueue(kLayerSlice, kBatch);
      slices += kBatch;
      if (!opened) gate_.open();
    }
    copy_.end.record(copy_.stream.get());
    const double copy_us = copy_.ms() * 1e3;
    if (pushed_gbps != nullptr) *pushed_gbps = gbps_of(slices * kLayerSlice, copy_us);
    return compute_.ms();
  }

  double kernel_us(int64_t slice_bytes, int32_t count, int32_t sms) {
    copy_.begin.record(copy_.stream.get());
    for (int32_t first = 0; first < count; first += kPushSlicesMax) {
      PushSlices slices;
      slices.count = std::min(count - first, kPushSlicesMax);
      for (int32_t i = 0; i < slices.count; ++i) {
        slices.src[i] = source_.data() + (first + i) * slice_bytes;
        slices.dst[i] = target(slice_bytes, count, first + i);
        slices.units[i] = static_cast<uint32_t>(slice_bytes / kPushAlignmentBytes);
      }
      push_slices(slices, sms, copy_.stream.get());
    }
    copy_.end.record(copy_.stream.get());
    return copy_.ms() * 1e3;
  }
  double kernel_gbps(int64_t slice_bytes, int32_t count, int32_t sms) {
    return gbps_of(slice_bytes * count, kernel_us(slice_bytes, count, sms));
  }

  std::byte* const target_;
  const DeviceBuffer source_;
  CudaLinear linear_;
  const CudaLinearWeight weight_;
  const DeviceBuffer x_, y_;
  Gate gate_;
  Timed compute_, copy_;
  CudaEvent layer_;
  double host_us_ = 0;  // a slice, of the last push
};

int run() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  // Before this process touches CUDA: a context does not survive a fork.
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const int32_t gpus = cuda_device_count();
    if (gpus == 0) _exit(0);
    own_memory(ends[1], gpus > 1 ? 1 : 0);
  }
  close(ends[1]);
  const ScopedFd socket(ends[0]);
  int status = 0;
  const int32_t gpus = cuda_device_count();
  if (gpus == 0) {
    std::printf("no GPU here: nothing to measure\n");
    return waitpid(child, &status, 0) == child ? 0 : 1;
  }
  const CudaDevice device = open_cuda_device(0);
  Result<UnixMessage> message = receive_message(socket.get());
  if (!message.ok() || message->fds.size() != 1) throw ConfigError("the peer has no memory");
  const std::unique_ptr<HandoffMemory> memory = make_cuda_handoff_memory(0);
  Result<std::unique_ptr<SharedMemory>> pool = memory->import(message->fds[0].get(), kPoolBytes);
  if (!pool.ok()) throw ConfigError(pool.status().message());
  std::printf("%s, from GPU 0 to GPU %d of another process\n", device.name.c_str(),
              gpus > 1 ? 1 : 0);
  Bench bench(device, (*pool)->data());
  bench.print_engines();
  bench.print_gemms();
  bench.print_kernel();
  bench.print_short();
  bench.print_digest();
  return 0;
}

}  // namespace
}  // namespace baton

int main() {
  try {
    return baton::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transfer_cuda_bench: %s\n", error.what());
    return 1;
  }
}
