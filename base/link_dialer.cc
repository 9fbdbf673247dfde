#include "base/link_dialer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace baton {

void LinkDialer::add(const std::string& address, int64_t now_us) {
  const auto at =
      targets_.try_emplace(address, Target{.due_us = now_us, .backoff_ms = reconnect_ms_}).first;
  at->second.released = false;
}

LinkId LinkDialer::remove(const std::string& address) {
  const auto at = targets_.find(address);
  if (at == targets_.end()) return kNoLink;
  const LinkId link = at->second.link;
  targets_.erase(at);
  return link;
}

LinkId LinkDialer::release(const std::string& address) {
  const auto at = targets_.find(address);
  if (at == targets_.end() || !at->second.up) return remove(address);
  at->second.released = true;
  return kNoLink;
}

std::vector<std::string> LinkDialer::take_due(int64_t now_us) {
  std::vector<std::string> due;
  for (auto& [address, target] : targets_) {
    if (target.busy || target.due_us > now_us) continue;
    target.busy = true;
    target.link = kNoLink;
    ++target.tries;
    due.push_back(address);
  }
  return due;
}

void LinkDialer::started(const std::string& address, LinkId link) {
  if (const auto at = targets_.find(address); at != targets_.end()) at->second.link = link;
}

bool LinkDialer::awaits_link(const std::string& address) const {
  const auto at = targets_.find(address);
  return at != targets_.end() && at->second.busy && at->second.link == kNoLink;
}

void LinkDialer::succeeded(const std::string& address) {
  const auto at = targets_.find(address);
  if (at == targets_.end()) return;
  at->second.backoff_ms = reconnect_ms_;
  at->second.reason.clear();
  at->second.up = true;
  if (std::exchange(at->second.been_up, true)) ++reconnects_;
}

void LinkDialer::ended(const std::string& address, LinkId link, int64_t now_us,
                       const std::string& reason) {
  const auto at = targets_.find(address);
  if (at == targets_.end() || !at->second.busy || at->second.link != link) return;
  Target& target = at->second;
  const bool failed = !target.up;  // the end of a link that was up is told as link_down
  if (failed && target.reason != reason)
    log_warn("link_dial_failed", {{"address", address}, {"reason", reason}});
  if (target.released) {
    targets_.erase(at);
    return;
  }
  target.reason = failed ? reason : "";
  target.busy = false;
  target.up = false;
  target.link = kNoLink;
  target.due_us = now_us + target.backoff_ms * 1000;
  target.backoff_ms = std::min(2 * target.backoff_ms, kBackoffMaxMs);
}

uint32_t LinkDialer::tries(const std::string& address) const {
  const auto at = targets_.find(address);
  return at == targets_.end() ? 0 : at->second.tries;
}

int64_t LinkDialer::next_due_us() const {
  int64_t next = INT64_MAX;
  for (const auto& [address, target] : targets_)
    if (!target.busy) next = std::min(next, target.due_us);
  return next;
}

}  // namespace baton
