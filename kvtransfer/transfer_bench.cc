// What a handoff costs: GB/s and microseconds by transport, page and slice size, next to memcpy
// measured in the same run. Two movers in one process, each with its own handoff thread; the pages'
// memory is touched before anything is timed.
//
//   transfer_bench [--transports mapped,ucx,tcp] [--mib 256]
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/bounded_queue.h"
#include "kvtransfer/page_mover.h"
#include "kvtransfer/probe.h"

namespace baton {
namespace {

constexpr int32_t kLayers = 8;
constexpr LinkId kLink = 1;
constexpr uint64_t kGrant = 1;
constexpr int32_t kSinglePages = 200;  // for the median

KvLayout layout_of(int64_t slice_bytes) {
  KvGroup group{.num_kv_heads = 2,
                .head_dim = static_cast<int32_t>(slice_bytes / (2 * 2 * 16 * 4)),
                .page_tokens = 16};
  for (int32_t layer = 0; layer < kLayers; ++layer) group.layers.push_back(layer);
  return {{group}};
}

struct End {
  End(const KvTransferConfig& config, const KvLayout& layout, int32_t pages, const Clock& clock)
      : pool(layout.groups[0], pages, 64 << 20) {
    std::memset(pool.base(), 1, static_cast<size_t>(pages * pool.page_bytes()));
    mover = make_page_mover(config, layout, {&pool}, "127.0.0.1", clock,
                            [this](MoverEvent event) { (void)events.try_push(std::move(event)); });
  }
  MoverEvent wait(MoverEvent::Kind kind) {
    for (;;) {
      std::optional<MoverEvent> event = events.pop();
      if (event->kind == kind) return *event;
      std::fprintf(stderr, "unexpected event: %s\n", event->error.c_str());
      if (event->kind == MoverEvent::Kind::kFailed ||
          event->kind == MoverEvent::Kind::kAttachFailed)
        std::exit(1);
    }
  }
  PagePool pool;
  BoundedQueue<MoverEvent> events{1024};
  std::unique_ptr<PageMover> mover;
};

class Run {
 public:
  Run(const std::string& transport, int64_t slice_bytes, int32_t pages)
      : layout_(layout_of(slice_bytes)),
        pages_(pages),
        p_({.transports = transport}, layout_, pages, clock_),
        d_({.transports = transport}, layout_, pages, clock_) {
    const auto lease = std::make_shared<std::atomic<int64_t>>(INT64_MAX);
    p_.mover->attach(kLink, d_.mover->offer(kLink), lease);
    attached_ = p_.wait(MoverEvent::Kind::kAttached);
    std::vector<int32_t> all(pages);
    for (int32_t i = 0; i < pages; ++i) all[i] = i;
    d_.mover->allow(kLink, kGrant, {all});
  }

  // Pushes `count` pages from `first` on and waits; microseconds.
  double push(int32_t first, int32_t count, bool by_layer) {
    const TransferId transfer = next_transfer_++;
    StepInput step;
    step.step = transfer;
    for (int32_t i = 0; i < count; ++i)
      step.pushes.push_back({transfer, 0, first + i, pages_ - 1 - first - i});
    const Stopwatch stopwatch;
    p_.mover->begin(transfer, kLink, kGrant);
    if (by_layer) {
      for (int32_t layer = 0; layer < kLayers; ++layer) p_.mover->layer_written(step, layer);
    } else {
      p_.mover->push(step.pushes);
    }
    p_.mover->finish(transfer, by_layer ? transfer : 0);
    p_.wait(MoverEvent::Kind::kDone);
    return stopwatch.elapsed_us();
  }

  void report(const std::string& transport, bool by_layer) {
    push(0, pages_, by_layer);
    double best_us = 1e18;
    for (int32_t round = 0; round < 3; ++round)
      best_us = std::min(best_us, push(0, pages_, by_layer));
    std::vector<double> single_us;
    for (int32_t i = 0; i < kSinglePages; ++i) single_us.push_back(push(i % pages_, 1, by_layer));
    std::nth_element(single_us.begin(), single_us.begin() + kSinglePages / 2, single_us.end());
    const int64_t page_bytes = p_.pool.page_bytes();
    std::printf("%-9s %9ld %9ld %9.2f %12.1f   %.2f GB/s, %.1f us at attach\n", transport.c_str(),
                page_bytes >> 10, (by_layer ? page_bytes / kLayers : page_bytes) >> 10,
                gbps_of(pages_ * page_bytes, best_us), single_us[kSinglePages / 2], attached_.gbps,
                attached_.latency_us);
    std::fflush(stdout);
  }

  void report_memcpy() {
    const int64_t page_bytes = p_.pool.page_bytes();
    const auto copy = [&](int32_t page) {
      std::memcpy(d_.pool.page(pages_ - 1 - page), p_.pool.page(page),
                  static_cast<size_t>(page_bytes));
    };
    double best_us = 1e18;
    for (int32_t round = 0; round < 4; ++round) {
      const Stopwatch stopwatch;
      for (int32_t page = 0; page < pages_; ++page) copy(page);
      best_us = std::min(best_us, stopwatch.elapsed_us());
    }
    const Stopwatch stopwatch;
    for (int32_t i = 0; i < kSinglePages; ++i) copy(i % pages_);
    std::printf("%-9s %9ld %9s %9.2f %12.1f\n", "memcpy", page_bytes >> 10, "",
                gbps_of(pages_ * page_bytes, best_us), stopwatch.elapsed_us() / kSinglePages);
  }

 private:
  SystemClock clock_;
  const KvLayout layout_;
  const int32_t pages_;
  End p_;
  End d_;
  MoverEvent attached_;
  TransferId next_transfer_ = 1;
};

void print_machine() {
  utsname name{};
  uname(&name);
  std::ifstream info("/proc/cpuinfo");
  std::string model;
  for (std::string line; std::getline(info, line) && model.empty();) {
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
  }
  std::ifstream loads("/proc/loadavg");
  std::string load;
  loads >> load;
  std::printf("%s, %u cores, Linux %s, load %s\n", model.c_str(),
              std::thread::hardware_concurrency(), name.release, load.c_str());
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  CLI::App app("GB/s and microseconds of page transfers");
  std::string transports = "mapped,ucx,tcp";
  int64_t mib = 256;
  app.add_option("--transports", transports, "comma-separated");
  app.add_option("--mib", mib, "of pages moved at once");
  CLI11_PARSE(app, argc, argv);
  baton::print_machine();
  std::printf("%-9s %9s %9s %9s %12s\n", "transport", "page KiB", "slice KiB", "GB/s", "us a page");
  for (const int64_t slice_bytes : {4 << 10, 32 << 10, 256 << 10}) {
    const auto pages = static_cast<int32_t>((mib << 20) / (slice_bytes * baton::kLayers));
    std::istringstream names(transports);
    bool first = true;
    for (std::string name; std::getline(names, name, ','); first = false) {
      baton::Run run(name, slice_bytes, pages);
      if (first) run.report_memcpy();
      run.report(name, false);
      run.report(name, true);
    }
  }
  return 0;
}
