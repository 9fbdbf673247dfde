#include "base/link_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/listen_address.h"
#include "base/log.h"

namespace baton {

LinkLoop::LinkLoop(const LinkConfig& config, PeerInfo self,
                   std::shared_ptr<CredentialFiles> credentials, const std::string& listen,
                   const Clock& clock, Links::Sink sink)
    : config_(config),
      self_(std::move(self)),
      credentials_(std::move(credentials)),
      clock_(clock),
      sink_(std::move(sink)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      dialer_(config.reconnect_ms) {
  for (const std::string* name : {&self_.worker_id, &self_.kv_compat_id, &self_.model_name})
    if (name->size() > kPeerNameBytesMax)
      throw ConfigError("name of this process: got " + std::to_string(name->size()) +
                        " bytes, want at most " + std::to_string(kPeerNameBytesMax));
  for (const char* reason : {"unauthenticated", "refused", "timeout", "lost", "other"})
    stats_.handshake_failures[reason] = 0;
  published_stats_ = stats_;
  if (!wake_.valid() || !epoll_.valid()) throw ConfigError("no file descriptor left for links");
  watch(wake_.get(), kWakeTag, EPOLLIN, EPOLL_CTL_ADD);
  if (!listen.empty()) open_listener(listen);
  thread_ = std::thread([this] { run(); });
}

LinkLoop::~LinkLoop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void LinkLoop::open_listener(const std::string& listen) {
  Result<ScopedFd> listener = listen_tcp(listen_address(listen, credentials_->has_token()));
  if (!listener.ok()) throw ConfigError("listen " + listen + ": " + listener.status().message());
  listener_ = std::move(*listener);
  port_ = local_port(listener_);
  watch(listener_.get(), kListenerTag, EPOLLIN, EPOLL_CTL_ADD);
}

void LinkLoop::watch(int fd, uint64_t tag, uint32_t events, int operation) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  CHECK(::epoll_ctl(epoll_.get(), operation, fd, &event) == 0) << "epoll_ctl: errno " << errno;
}

void LinkLoop::post(Command command) {
  bool first = false;
  {
    std::lock_guard lock(mutex_);
    first = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (first) ::eventfd_write(wake_.get(), 1);
}

void LinkLoop::linger(std::chrono::microseconds duration) {
  linger_.start(duration);
  ::eventfd_write(wake_.get(), 1);
}

Lease LinkLoop::lease(LinkId link) const {
  std::lock_guard lock(mutex_);
  const auto at = leases_.find(link);
  if (at != leases_.end()) return at->second;
  return std::make_shared<const std::atomic<int64_t>>(0);
}

LinkStats LinkLoop::stats() const {
  std::lock_guard lock(mutex_);
  return published_stats_;
}

bool LinkLoop::stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

void LinkLoop::run() {
  now_us_ = clock_.now_us();
  while (!stopping()) wait_and_serve();
  take_commands();  // what was sent before the end still goes out, as far as the sockets take it
  flush_touched();
}

void LinkLoop::wait_and_serve() {
  std::array<epoll_event, 256> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms());
  look_at_clock();
  for (int i = 0; i < n; ++i) {
    const uint64_t tag = events[i].data.u64;
    if (tag == kWakeTag) {
      eventfd_t count = 0;
      ::eventfd_read(wake_.get(), &count);
    } else if (tag == kListenerTag) {
      accept_waiting();
    } else {
      serve(tag);
    }
  }
  take_commands();
  flush_touched();
  tick();
}

int LinkLoop::wait_ms() const {
  int64_t next_us = std::min(next_tick_us_, dialer_.next_due_us());
  if (accept_again_us_ != 0) next_us = std::min(next_us, accept_again_us_);
  if (linger_.on()) return 0;
  if (next_us == INT64_MAX) return -1;
  const int64_t wait_us = std::max<int64_t>(0, next_us - clock_.now_us());
  return static_cast<int>(std::min<int64_t>((wait_us + 999) / 1000, 60'000));
}

void LinkLoop::look_at_clock() {
  const int64_t last_look_us = now_us_;
  now_us_ = clock_.now_us();
  drop_links_if_paused(last_look_us);
}

// A process that was stopped (SIGSTOP, a suspended machine) wakes to sockets full of what was true
// before. A peer that has given us up did so after our lease ran out: such links go first, and
// nothing of that is read. Without a standstill an old lease only means that acknowledgements are
// late.
void LinkLoop::drop_links_if_paused(int64_t last_look_us) {
  const int64_t paused_ms = (now_us_ - last_look_us) / 1000;
  if (2 * paused_ms <= config_.lease_ms) return;
  std::vector<LinkId> expired;
  for (const auto& [link, connection] : connections_)
    if (connection->up() && connection->lease()->load() <= now_us_) expired.push_back(link);
  for (const LinkId link : expired)
    drop(link, unavailable("this process stood still for " + std::to_string(paused_ms) +
                           " ms, and its lease has run out"));
}

void LinkLoop::take_commands() {
  std::vector<Command> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (Command& command : commands) std::visit([this](auto& c) { take(c); }, command);
}

void LinkLoop::take(Send& command) {
  LinkConnection* connection = find(command.link);
  if (connection == nullptr || !connection->up()) return;
  const Status status = connection->send(command.message);
  touched_.push_back(command.link);
  if (!status.ok()) drop(command.link, status);
}

void LinkLoop::take(Close& command) {
  if (LinkConnection* connection = find(command.link))
    close(*connection, unavailable(command.reason));
}

void LinkLoop::take(Connect& command) {
  dialer_.add(command.address, now_us_);
}

void LinkLoop::take(Disconnect& command) {
  if (LinkConnection* connection = find(dialer_.remove(command.address)))
    close(*connection, unavailable("disconnected"));
}

void LinkLoop::take(Release& command) {
  if (LinkConnection* connection = find(dialer_.release(command.address)))
    close(*connection, unavailable("released"));
}

void LinkLoop::take(Resolved& command) {
  // Another answer to the same question, or nobody waits for it any more.
  if (!dialer_.awaits_link(command.address)) return;
  if (command.found.ok()) {
    dial_socket(command.address, *command.found);
  } else {
    dialer_.ended(command.address, LinkDialer::kNoLink, now_us_, command.found.status().message());
  }
}

void LinkLoop::flush_touched() {
  std::vector<LinkId> touched;
  touched.swap(touched_);
  for (const LinkId link : touched) flush(link);  // has nothing to do the second time
}

void LinkLoop::tick() {
  if (accept_again_us_ != 0 && now_us_ >= accept_again_us_) {
    accept_again_us_ = 0;
    watch(listener_.get(), kListenerTag, EPOLLIN, EPOLL_CTL_MOD);
  }
  for (const std::string& address : dialer_.take_due(now_us_)) dial(address);
  if (now_us_ >= next_tick_us_) tick_links();
}

void LinkLoop::tick_links() {
  std::vector<std::pair<LinkId, Status>> failed;
  next_tick_us_ = INT64_MAX;
  for (const auto& [link, connection] : connections_) {
    const Status status = connection->tick(now_us_);
    if (!status.ok()) {
      failed.emplace_back(link, status);
      continue;
    }
    if (connection->wants_write()) touched_.push_back(link);
    next_tick_us_ = std::min(next_tick_us_, connection->next_tick_us());
  }
  for (const auto& [link, reason] : failed) drop(link, reason);
  flush_touched();
  publish_stats();
}

void LinkLoop::publish_stats() {
  LinkStats stats = stats_;
  stats.reconnects = dialer_.reconnects();
  for (const auto& [link, connection] : connections_) {
    stats.peers += connection->up() ? 1 : 0;
    stats.bytes_in += connection->bytes_in();
    stats.bytes_out += connection->bytes_out();
    stats.outbox_bytes += connection->outbox_bytes();
  }
  std::lock_guard lock(mutex_);
  published_stats_ = std::move(stats);
}

}  // namespace baton
