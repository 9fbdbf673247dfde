// The handoff thread's sleep: file descriptors, timers and wake-ups from other threads in one epoll
// loop that never spins. Everything but wake() belongs to the thread that calls poll().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/scoped_fd.h"

namespace baton {

class PollLoop {
 public:
  using Handler = std::function<void(uint32_t epoll_events)>;

  // Stops watching (a timer: never fires) when destroyed. Destroy it before the descriptor is
  // closed, and before the loop. A handler may destroy its own Watch.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { reset(); }
    void reset();
    void set_events(uint32_t epoll_events);  // REQUIRES: made by watch()

   private:
    friend class PollLoop;
    Watch(PollLoop* loop, uint64_t id) : loop_(loop), id_(id) {}
    PollLoop* loop_ = nullptr;
    uint64_t id_ = 0;
  };

  PollLoop();  // throws ConfigError when the kernel has no descriptors left

  // Level-triggered. `fd` is borrowed.
  [[nodiscard]] Watch watch(int fd, uint32_t epoll_events, Handler handler);
  [[nodiscard]] Watch after_ms(int64_t delay_ms, std::function<void()> handler);  // once
  // Asked at the start of every poll() for libraries with a wake-up descriptor of their own rules;
  // false: do not sleep now.
  [[nodiscard]] Watch before_sleep(std::function<bool()> hook);

  // Runs the handlers of what is ready; `wait`: sleeps until something is, or until wake().
  void poll(bool wait);
  void wake();  // any thread

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct Entry {
    int fd = -1;
    uint32_t events = 0;
    std::shared_ptr<Handler> handler;
  };
  struct Timer {
    uint64_t id = 0;
    std::function<void()> handler;
  };

  void remove(uint64_t id);
  int timeout_ms(bool wait) const;
  void run_timers();

  ScopedFd epoll_;
  ScopedFd wake_;
  uint64_t next_id_ = 1;  // 0 is wake_'s
  std::map<uint64_t, Entry> entries_;
  std::multimap<SteadyTime, Timer> timers_;
  std::map<uint64_t, std::function<bool()>> sleep_hooks_;
};

}  // namespace baton
