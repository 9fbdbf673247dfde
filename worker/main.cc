// baton-worker --role prefill|decode|both --model PATH --listen HOST:PORT
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/log.h"
#include "config/settings.h"
#include "worker/exit_limit.h"
#include "worker/metric_table.h"
#include "worker/worker_process.h"

namespace {

// SIGTERM and SIGINT are taken by a thread of their own; all other threads inherit the blocked
// mask.
sigset_t block_stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t stop_signals = block_stop_signals();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a log file that may not grow: its lines are lost
  try {
    const baton::WorkerConfig config = baton::parse_worker_config(
        argc, argv,
        {{"--metrics-markdown", "Print the page of a worker's metrics and end.",
          baton::worker_metrics_markdown}});
    std::atomic<baton::WorkerProcess*> started{nullptr};
    std::jthread signals([&](const std::stop_token& token) {
      const timespec tick{.tv_sec = 0, .tv_nsec = 200'000'000};
      while (!token.stop_requested()) {
        if (sigtimedwait(&stop_signals, nullptr, &tick) <= 0) continue;
        baton::WorkerProcess* const worker = started.load();
        if (worker == nullptr) std::_Exit(0);  // it is still loading: there is nothing to drain
        worker->stop();
      }
    });
    auto worker = std::make_unique<baton::WorkerProcess>(config);
    started = worker.get();
    const int status = worker->run();
    signals.request_stop();
    signals.join();
    const baton::ExitLimit limit(std::chrono::milliseconds(config.stall_timeout_ms), [&config] {
      baton::log_error("worker_end_hangs", {{"stall_timeout_ms", config.stall_timeout_ms}});
      std::_Exit(1);
    });
    worker.reset();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "baton-worker: %s\n", error.what());
    return 2;
  }
}
