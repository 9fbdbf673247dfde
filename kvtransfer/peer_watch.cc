#include "kvtransfer/peer_watch.h"

#include <poll.h>
#include <sys/epoll.h>

#include <fstream>
#include <optional>
#include <string>

namespace baton {
namespace {

// The PID that a pidfd stands for as seen from here (0: another PID namespace; -1: ended), nothing
// if it is no pidfd. proc(5), fdinfo.
std::optional<int32_t> pid_of(int pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd));
  for (std::string key; info >> key;) {
    int32_t pid = 0;
    if (key == "Pid:" && info >> pid) return pid;
    info.ignore(256, '\n');
  }
  return std::nullopt;
}

constexpr size_t kProcessesMax = 4096;  // one descriptor each

bool has_ended(int pidfd) {
  pollfd poll_one{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&poll_one, 1, 0) > 0;
}

}  // namespace

Status PeerWatch::add(LinkId link, ScopedFd pidfd, int32_t peer_pid) {
  const std::optional<int32_t> pid = pid_of(pidfd.get());
  if (!pid) return invalid_argument("hello: got a descriptor that is no pidfd");
  if (*pid > 0 && peer_pid > 0 && *pid != peer_pid) {
    return invalid_argument("hello: got the pidfd of process " + std::to_string(*pid) +
                            ", want that of " + std::to_string(peer_pid));
  }
  // A living process keeps its PID: the same number means the same process, and one descriptor is
  // enough for all its links.
  for (auto& [id, process] : processes_) {
    if (*pid > 0 && process.pid == *pid && !has_ended(process.pidfd.get())) {
      process.links.push_back(link);
      return {};
    }
  }
  if (processes_.size() >= kProcessesMax) {
    return {Code::kResourceExhausted,
            "hello: " + std::to_string(kProcessesMax) + " processes are watched already"};
  }
  const uint64_t id = next_id_++;
  Process& process = processes_[id];
  process.pidfd = std::move(pidfd);
  process.pid = *pid;
  process.links = {link};
  process.watch = loop_.watch(process.pidfd.get(), EPOLLIN, [this, id](uint32_t) { on_exit(id); });
  return {};
}

void PeerWatch::on_exit(uint64_t id) {
  auto process = processes_.extract(id);
  for (const LinkId link : process.mapped().links) on_dead_(link);
}

}  // namespace baton
