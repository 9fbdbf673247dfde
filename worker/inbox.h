// Everything the worker's loop wakes for, in one queue: links, the mover, the engine, a wish to
// stop, and a question of the status server.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "base/linger.h"
#include "base/link.h"
#include "kvtransfer/page_mover.h"
#include "model/engine.h"
#include "worker/worker_view.h"

namespace baton {

struct DrainWish {};  // SIGTERM: serve what there is, take nothing new, then leave

struct ViewWish {  // what is there now; the asker waits, and may have given up
  std::shared_ptr<std::promise<WorkerView>> answer;
};

using WorkerEvent = std::variant<LinkEvent, MoverEvent, StepOutput, DrainWish, ViewWish>;

// Many producers, one consumer. Not bounded itself: each producer is (a link by its peers' outboxes
// and credit of one request each, the mover by its transfers, the engine by steps_ahead), and
// losing an event here would lose a page.
class Inbox {
 public:
  void push(WorkerEvent event) {
    {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      any_ = true;
    }
    ready_.notify_one();
  }

  // Waits for events, at most `timeout`, and takes all there are, in order.
  std::vector<WorkerEvent> wait(std::chrono::microseconds timeout) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, timeout, [this] { return !events_.empty() || linger_.on(); });
    if (events_.empty()) {
      lock.unlock();
      linger_.poll([this] { return any_.load(); });
      lock.lock();
    }
    any_ = false;
    return std::exchange(events_, {});
  }

  // wait() polls for so long instead of sleeping: an event is about to come.
  void linger(std::chrono::microseconds duration) {
    linger_.start(duration);
    {
      std::lock_guard lock(mutex_);  // wait() sees this, or is waiting already
    }
    ready_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  Linger linger_;
  std::vector<WorkerEvent> events_;  // guarded by mutex_
  std::atomic<bool> any_{false};     // there are; written with mutex_ held
};

}  // namespace baton
