// Proof of death for peers that write into our memory without a conversation over a UNIX socket of
// their own (docs/protocol.md; transport "ucx" on one host): before it connects, P leaves a
// pidfd of itself at D, by one message {connect nonce} with the descriptor. Handoff thread only,
// but for construction.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "kvtransfer/offer.h"
#include "kvtransfer/peer_watch.h"
#include "kvtransfer/poll_loop.h"

namespace baton {

class DeathNotes {
 public:
  // `loop` and `offers` outlive it. `on_dead` as PeerWatch's. Throws ConfigError when it cannot
  // listen.
  DeathNotes(PollLoop& loop, const OfferBook& offers, PeerWatch::OnDead on_dead);

  const std::string& socket_name() const { return socket_name_; }
  // Whether the process behind this link is watched.
  bool has(LinkId link) const { return links_.contains(link); }
  void forget(LinkId link) { links_.erase(link); }  // watching goes on until the process is dead

  // P's side, towards the socket of a peer on this host. kUnavailable where it is not to be seen
  // from here (another network namespace).
  static Status leave(const std::string& socket_name, const Nonce& connect);

 private:
  void on_accept();
  void on_message(int32_t id);
  Status take(int socket);

  struct Connection {
    ScopedFd socket;
    PollLoop::Watch watch;
  };

  PollLoop& loop_;
  const OfferBook& offers_;
  const std::string socket_name_;
  ScopedFd listener_;
  PeerWatch peers_;
  std::set<LinkId> links_;
  int32_t next_id_ = 1;
  std::map<int32_t, Connection> connections_;  // that have not said anything
  PollLoop::Watch accept_watch_;
  PollLoop::Watch accept_pause_;
};

}  // namespace baton
