// For tests of links: a process' Links and everything they told. Included by the link tests only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/log.h"

namespace baton {

// One process of the tests: Links and everything they told.
class Node {
 public:
  Node(const std::string& worker_id, Epoch epoch, LinkConfig config = fast(),
       const std::string& listen = "127.0.0.1:0", const Clock* clock = nullptr) {
    set_log_level(LogLevel::kError);
    PeerInfo self;
    self.worker_id = worker_id;
    self.epoch = epoch;
    self.role = Role::kBoth;
    const Clock& used = clock != nullptr ? *clock : clock_;
    links = std::make_unique<Links>(config, self, listen, used, [this](LinkEvent event) {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    });
  }

  static LinkConfig fast() {
    LinkConfig config;
    config.lease_ms = 10'000;  // longer than a busy machine lets a thread wait
    config.hello_timeout_ms = 300;
    config.reconnect_ms = 10;
    return config;
  }

  // For tests of silence: a busy machine may end a link too soon, so they must not mind one more.
  static LinkConfig short_lease() {
    LinkConfig config = fast();
    config.lease_ms = 400;
    return config;
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(links->port()); }

  // Takes events until one is a T for which `want` holds, and gives it; throws after 10 s.
  template <typename T>
  T wait(const std::function<bool(const T&)>& want = [](const T&) { return true; }) {
    std::unique_lock lock(mutex_);
    for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);;) {
      while (taken_ < events_.size()) {
        const T* event = std::get_if<T>(&events_[taken_++]);
        if (event != nullptr && want(*event)) return *event;
      }
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout)
        throw std::runtime_error("the event did not come");
    }
  }
  template <typename T>
  size_t count() {
    std::lock_guard lock(mutex_);
    size_t n = 0;
    for (const LinkEvent& event : events_) n += std::holds_alternative<T>(event);
    return n;
  }

 private:
  SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<LinkEvent> events_;
  size_t taken_ = 0;

 public:
  std::unique_ptr<Links> links;  // last: its thread uses the above until it is gone
};

}  // namespace baton
