#include "kernels/cpu/thread_pool.h"

#include "base/check.h"

namespace baton {
namespace {

// About 20 us: longer than the gap between two ops of a step, far shorter than a scheduler's time
// slice.
constexpr int kSpins = 400;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int32_t threads) {
  CHECK_GE(threads, 1) << "a pool has at least its owner's thread";
  for (int32_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  ++wakeups_;
  wakeups_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Invoke invoke, const void* task) {
  CHECK_LT(count, int64_t{1} << 31) << "tasks are counted in 31 bits";
  if (count <= 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i) invoke(task, i, 0);
    return;
  }
  invoke_ = invoke;
  task_ = task;
  count_ = count;
  unfinished_.store(static_cast<int32_t>(count), std::memory_order_relaxed);
  const uint64_t epoch = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(epoch << 32 |
                static_cast<uint64_t>(count));  // seq_cst: before the look at sleepers_
  if (sleepers_.load() > 0) {
    ++wakeups_;
    wakeups_.notify_all();
  }
  work(0);
  for (int i = 0; i < kSpins && unfinished_.load(std::memory_order_acquire) > 0; ++i)
    pause_briefly();
  while (const int32_t left = unfinished_.load(std::memory_order_acquire)) {
    unfinished_.wait(left, std::memory_order_acquire);
  }
}

void ThreadPool::work(int32_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(ticket) > 0) {
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    // The claimed task keeps the job alive, so its fields are stable from here to the decrement.
    const int64_t index = count_ - static_cast<uint32_t>(ticket);
    invoke_(task_, index, thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::worker_loop(int32_t thread) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint64_t epoch = ticket_.load(std::memory_order_acquire) >> 32;
    work(thread);
    wait_for_job(epoch);
  }
}

void ThreadPool::wait_for_job(uint64_t seen_epoch) {
  const auto has_news = [&] {
    const uint64_t ticket = ticket_.load();
    return (ticket >> 32 != seen_epoch && static_cast<uint32_t>(ticket) > 0) || stopping_.load();
  };
  for (int i = 0; i < kSpins; ++i) {
    if (has_news()) return;
    pause_briefly();
  }
  ++sleepers_;
  const uint32_t wakeups = wakeups_.load();
  if (!has_news()) wakeups_.wait(wakeups);
  --sleepers_;
}

}  // namespace baton
