#include "kvtransfer/poll_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/status.h"

namespace baton {

PollLoop::Watch::Watch(Watch&& other) noexcept
    : loop_(std::exchange(other.loop_, nullptr)), id_(other.id_) {}

PollLoop::Watch& PollLoop::Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    reset();
    loop_ = std::exchange(other.loop_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void PollLoop::Watch::reset() {
  if (loop_ != nullptr) std::exchange(loop_, nullptr)->remove(id_);
}

void PollLoop::Watch::set_events(uint32_t epoll_events) {
  Entry& entry = loop_->entries_.at(id_);
  if (entry.events == epoll_events) return;
  entry.events = epoll_events;
  epoll_event event{.events = epoll_events, .data = {.u64 = id_}};
  CHECK_EQ(epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_MOD, entry.fd, &event), 0) << strerror(errno);
}

PollLoop::PollLoop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (!epoll_.valid() || !wake_.valid() ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    throw ConfigError(std::string("handoff thread: cannot make its epoll set: ") + strerror(errno));
  }
}

PollLoop::Watch PollLoop::watch(int fd, uint32_t epoll_events, Handler handler) {
  const uint64_t id = next_id_++;
  epoll_event event{.events = epoll_events, .data = {.u64 = id}};
  CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), 0)
      << "fd " << fd << ": " << strerror(errno);
  entries_[id] = {fd, epoll_events, std::make_shared<Handler>(std::move(handler))};
  return {this, id};
}

PollLoop::Watch PollLoop::after_ms(int64_t delay_ms, std::function<void()> handler) {
  const uint64_t id = next_id_++;
  const SteadyTime when = std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms);
  timers_.emplace(when, Timer{id, std::move(handler)});
  return {this, id};
}

PollLoop::Watch PollLoop::before_sleep(std::function<bool()> hook) {
  const uint64_t id = next_id_++;
  sleep_hooks_[id] = std::move(hook);
  return {this, id};
}

void PollLoop::remove(uint64_t id) {
  if (sleep_hooks_.erase(id) > 0) return;
  if (const auto it = entries_.find(id); it != entries_.end()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second.fd, nullptr);
    entries_.erase(it);
    return;
  }
  std::erase_if(timers_, [id](const auto& timer) { return timer.second.id == id; });
}

int PollLoop::timeout_ms(bool wait) const {
  if (!wait) return 0;
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first - std::chrono::steady_clock::now();
  // Rounded up: waking before the time would make the loop turn without sleeping.
  const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000));
}

void PollLoop::poll(bool wait) {
  for (const auto& [id, hook] : sleep_hooks_) wait &= hook();
  std::array<epoll_event, 64> ready;
  const int count = epoll_wait(epoll_.get(), ready.data(), ready.size(), timeout_ms(wait));
  CHECK(count >= 0 || errno == EINTR) << strerror(errno);
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.u64 == 0) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
      continue;
    }
    const auto it = entries_.find(ready[i].data.u64);
    if (it == entries_.end()) continue;  // an earlier handler of this round removed it
    const std::shared_ptr<Handler> handler = it->second.handler;
    (*handler)(ready[i].events);
  }
  run_timers();
}

void PollLoop::run_timers() {
  const SteadyTime now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const std::function<void()> handler = std::move(timers_.begin()->second.handler);
    timers_.erase(timers_.begin());
    handler();
  }
}

void PollLoop::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));  // full: it is awake
}

}  // namespace baton
