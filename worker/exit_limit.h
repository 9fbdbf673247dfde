// Bounds the end of a process. A thread that waits for a GPU or a library which never answers keeps
// the destructors waiting, and only the end of the process gives back what hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace baton {

class ExitLimit {
 public:
  // `too_late` is called, from a thread of its own, unless this is destroyed within `limit`.
  ExitLimit(std::chrono::milliseconds limit, std::function<void()> too_late)
      : thread_([limit, too_late = std::move(too_late)](const std::stop_token& in_time) {
          std::mutex mutex;
          std::condition_variable_any ended;
          std::unique_lock lock(mutex);
          ended.wait_for(lock, in_time, limit, [] { return false; });
          if (!in_time.stop_requested()) too_late();
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace baton
