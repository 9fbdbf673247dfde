// Threads for what takes milliseconds: JSON bodies, chat templates, tokenisation. The router's loop
// hands jobs in and gets results posted back; jobs of different requests run in any order.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace baton {

class TextWorkers {
 public:
  using Job = std::function<void()>;

  TextWorkers(int32_t threads, size_t queue_max) : queue_(queue_max) {
    for (int32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~TextWorkers() { stop(); }

  // Thread-safe; false when too much work is queued.
  [[nodiscard]] bool submit(Job job) { return queue_.try_push(std::move(job)); }
  // Finishes what is queued and joins.
  void stop() {
    queue_.close();
    threads_.clear();
  }

 private:
  void run() {
    while (std::optional<Job> job = queue_.pop()) (*job)();
  }

  BoundedQueue<Job> queue_;
  std::vector<std::jthread> threads_;
};

}  // namespace baton
