// Who counts what the pushing side does: the worker's metrics. The loop's thread calls; nothing
// here may block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

// A decode worker whose pool can be written.
struct AttachedPeer {
  std::string peer;  // worker id
  std::string transport;
  // Measured when it was attached (Measurement).
  double gbps = 0;  // 1e9 bytes/s
  double latency_us = 0;
};

// A handoff whose pages have all been copied.
struct PushedHandoff {
  std::string transport;
  int64_t bytes = 0;  // of the pages granted for it
  double tail_s = 0;  // from the prompt's end to the last copy's: what computing did not hide
};

class HandoffWatch {
 public:
  virtual ~HandoffWatch() = default;

  virtual void reserve_answered(double waited_s) = 0;
  virtual void handoff_pushed(const PushedHandoff& pushed) = 0;
  // The decode worker has said that it goes on: so long after the prompt's last kernel.
  virtual void handoff_landed(double exposed_s) = 0;
  virtual void handoff_failed() = 0;  // a copy failed, or the decode worker was lost
  virtual void attach_failed() = 0;
  virtual void peers_changed(const std::vector<AttachedPeer>& peers) = 0;  // all that there are now
};

}  // namespace baton
