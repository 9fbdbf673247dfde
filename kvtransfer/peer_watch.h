// Proof of death on one host (docs/protocol.md): holds the pidfds that mapping peers have
// sent and reports the links of a process once it has ended, by which time the kernel has taken its
// mappings away. Handoff thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/link.h"
#include "base/scoped_fd.h"
#include "base/status.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

class PeerWatch {
 public:
  using OnDead = std::function<void(LinkId)>;

  PeerWatch(PollLoop& loop, OnDead on_dead) : loop_(loop), on_dead_(std::move(on_dead)) {}

  // Watches the process behind `pidfd` for `link`, until it is dead, also when the link is gone.
  // `peer_pid`: what the kernel says of the socket's other end (0: in a PID namespace that we do
  // not see). Refuses what is no pidfd, or another process's.
  Status add(LinkId link, ScopedFd pidfd, int32_t peer_pid);

 private:
  struct Process {
    ScopedFd pidfd;
    int32_t pid = 0;  // 0: not visible from here
    std::vector<LinkId> links;
    PollLoop::Watch watch;
  };
  void on_exit(uint64_t id);

  PollLoop& loop_;
  const OnDead on_dead_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Process> processes_;
};

}  // namespace baton
