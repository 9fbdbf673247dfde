// The I/O thread of Links: one epoll loop over the listener and all connections. Made and called by
// link.cc. Everything below "the I/O thread's" is touched by that thread alone; other threads leave
// commands.
#pragma once

#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/linger.h"
#include "base/link_connection.h"
#include "base/link_dialer.h"
#include "base/resolver.h"

namespace baton {

class LinkLoop {
 public:
  LinkLoop(const LinkConfig& config, PeerInfo self, std::shared_ptr<CredentialFiles> credentials,
           const std::string& listen, const Clock& clock, Links::Sink sink);
  ~LinkLoop();
  LinkLoop(const LinkLoop&) = delete;
  LinkLoop& operator=(const LinkLoop&) = delete;

  struct Send {
    LinkId link;
    Message message;
  };
  struct Close {
    LinkId link;
    std::string reason;
  };
  struct Connect {
    std::string address;
  };
  struct Disconnect {
    std::string address;
  };
  struct Release {
    std::string address;
  };
  struct Resolved {
    std::string address;
    Result<std::vector<SocketAddress>> found;
  };
  using Command = std::variant<Send, Close, Connect, Disconnect, Release, Resolved>;

  void post(Command command);                       // any thread
  void linger(std::chrono::microseconds duration);  // any thread
  Lease lease(LinkId link) const;
  LinkStats stats() const;
  int32_t port() const { return port_; }

 private:
  // What epoll says of a descriptor: one of these, or its LinkId.
  static constexpr uint64_t kWakeTag = 0;
  static constexpr uint64_t kListenerTag = 1;
  static constexpr LinkId kFirstLink = 2;
  using Connections = std::unordered_map<LinkId, std::unique_ptr<LinkConnection>>;

  // link_loop.cc: the loop
  void run();
  void wait_and_serve();
  void take_commands();
  void take(Send& command);
  void take(Close& command);
  void take(Connect& command);
  void take(Disconnect& command);
  void take(Release& command);
  void take(Resolved& command);
  void tick();
  void tick_links();
  void publish_stats();
  int wait_ms() const;
  void look_at_clock();
  void drop_links_if_paused(int64_t last_look_us);
  void open_listener(const std::string& listen);
  void watch(int fd, uint64_t tag, uint32_t events, int operation);
  void flush_touched();
  bool stopping() const;

  // link_peers.cc: connections come, prove themselves, and go
  void accept_waiting();
  void rest_listener();
  void dial(const std::string& address);
  void begin(ScopedFd socket, Hello::Side side, const std::string& address);
  void serve(LinkId link);
  void announce_up(LinkConnection& connection);
  void drop_older_of(const LinkConnection& connection);
  void close(LinkConnection& connection, const Status& reason);
  void drop(LinkId link, const Status& reason);
  void count_failure(const LinkConnection& connection, const Status& reason);
  void flush(LinkId link);
  LinkConnection* find(LinkId link);
  void dial_socket(const std::string& address, const std::vector<SocketAddress>& found);

  const LinkConfig config_;
  const PeerInfo self_;
  const std::shared_ptr<CredentialFiles> credentials_;
  const Clock& clock_;
  const Links::Sink sink_;
  int32_t port_ = 0;
  ScopedFd wake_;
  ScopedFd epoll_;
  Linger linger_;

  mutable std::mutex mutex_;
  std::vector<Command> commands_;             // guarded by mutex_
  std::unordered_map<LinkId, Lease> leases_;  // guarded by mutex_; of links that are up
  LinkStats published_stats_;                 // guarded by mutex_
  bool stopping_ = false;                     // guarded by mutex_

  // The I/O thread's.
  ScopedFd listener_;
  int64_t accept_again_us_ = 0;  // not 0: out of descriptors, the listener rests until then
  LinkId next_link_ = kFirstLink;
  Connections connections_;
  LinkDialer dialer_;
  std::unique_ptr<Resolver> resolver_;            // started by the first name
  std::vector<LinkId> touched_;                   // in this order: got something to write
  int64_t now_us_ = 0;                            // of this round
  int64_t next_tick_us_ = 0;                      // no connection needs tick() before
  LinkStats stats_;                               // bytes: of connections that have ended
  std::map<std::string, int64_t> refusals_told_;  // reason -> when: not each time

  std::thread thread_;  // last: uses all of the above
};

}  // namespace baton
