// The compute threads of a CPU backend. One owner thread calls parallel_for and takes part; the
// others wait, with a short bounded spin because the ops of a step follow each other within
// microseconds, then asleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace baton {

class ThreadPool {
 public:
  // `threads` counts the owner's.
  explicit ThreadPool(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return static_cast<int32_t>(workers_.size()) + 1; }

  // Runs task(i, thread) for every i in [0, count), each once, on whichever thread is free; returns
  // when all are done. A worker that is asleep or off its core is not waited for unless it has
  // already begun a task.
  template <typename Task>
  void parallel_for(int64_t count, const Task& task) {
    run(count, &invoke<Task>, &task);
  }

 private:
  using Invoke = void (*)(const void* task, int64_t index, int32_t thread);
  template <typename Task>
  static void invoke(const void* task, int64_t index, int32_t thread) {
    (*static_cast<const Task*>(task))(index, thread);
  }

  void run(int64_t count, Invoke invoke, const void* task);
  void work(int32_t thread);  // takes tasks of the current job until none is left
  void worker_loop(int32_t thread);
  void wait_for_job(uint64_t seen_epoch);

  // The current job. Written by the owner while no task is left; read by whoever holds a claimed
  // task.
  Invoke invoke_ = nullptr;
  const void* task_ = nullptr;
  int64_t count_ = 0;

  // Epoch of the job (high half) and its unclaimed tasks (low half) in one word, so that a worker
  // that was away cannot claim a task of a job it has not seen.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int32_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> wakeups_{0};  // what sleeping workers wait on
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace baton
