// Which addresses Links keeps connections to, and when each is dialled next. Owned by the I/O
// thread of link.cc; no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/link.h"

namespace baton {

class LinkDialer {
 public:
  // Waits reconnect_ms after a first failure, then double each time, up to kBackoffMaxMs; a success
  // starts over.
  explicit LinkDialer(int64_t reconnect_ms) : reconnect_ms_(reconnect_ms) {}

  static constexpr int64_t kBackoffMaxMs = 1000;
  static constexpr LinkId kNoLink = 0;

  void add(const std::string& address, int64_t now_us);  // idempotent
  // The link it had, or kNoLink.
  LinkId remove(const std::string& address);
  // Keeps an address whose link is up until that ends (add() before then takes it back), and
  // removes any other; the link to drop, or kNoLink.
  LinkId release(const std::string& address);

  // Addresses whose time has come; each is busy until ended(), with kNoLink when it never
  // started().
  std::vector<std::string> take_due(int64_t now_us);
  void started(const std::string& address, LinkId link);
  bool awaits_link(const std::string& address) const;  // busy and not started()
  void succeeded(const std::string& address);
  // Of a link that is not the address's current one: ignored.
  void ended(const std::string& address, LinkId link, int64_t now_us, const std::string& reason);
  // How often it was due: every further try takes the next of its resolved socket addresses.
  uint32_t tries(const std::string& address) const;

  int64_t reconnects() const { return reconnects_; }
  int64_t next_due_us() const;  // INT64_MAX: none

 private:
  struct Target {
    bool busy = false;
    bool up = false;
    bool released = false;  // forgotten once its link has ended
    bool been_up = false;
    int64_t due_us = 0;
    int64_t backoff_ms = 0;
    uint32_t tries = 0;
    LinkId link = kNoLink;  // being dialled or up
    std::string reason;     // of the last failure: told once
  };

  const int64_t reconnect_ms_;
  std::map<std::string, Target> targets_;
  int64_t reconnects_ = 0;
};

}  // namespace baton
